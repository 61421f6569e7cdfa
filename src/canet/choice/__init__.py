"""Choice of a model under simulated shift: candidate models, simulated shifts, and the rule."""

from canet.choice.auto import AutoTrainer
from canet.choice.ensemble import Ensemble, EnsembleReader, Reader

__all__ = ["AutoTrainer", "Ensemble", "EnsembleReader", "Reader"]

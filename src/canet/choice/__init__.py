"""Choose a model under simulated shift: models to try, shifts of the training data, and a rule."""

from canet.choice.auto import AutoTrainer
from canet.choice.ensemble import Ensemble, EnsembleReader, Reader

__all__ = ["AutoTrainer", "Ensemble", "EnsembleReader", "Reader"]

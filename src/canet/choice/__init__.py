"""Choose a model under simulated shift: candidates, shifts of the training data, and a rule."""

from canet.choice.auto import Auto, AutoTrainer
from canet.choice.ensemble import Ensemble, EnsembleReader
from canet.choice.portfolio import PRESETS, AutoSettings

__all__ = ["PRESETS", "Auto", "AutoSettings", "AutoTrainer", "Ensemble", "EnsembleReader"]

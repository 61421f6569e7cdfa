"""Training: trainer, training loop and selection rules."""

from canet.training.selection import SELECTION_RULES
from canet.training.trainer import Callback, Run, Trainer

__all__ = ["SELECTION_RULES", "Callback", "Run", "Trainer"]

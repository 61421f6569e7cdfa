"""Training: trainer, training loop, metrics and selection rules."""

from canet.training.metrics import METRICS
from canet.training.selection import SELECTION_RULES
from canet.training.trainer import Callback, Run, Trainer

__all__ = ["METRICS", "SELECTION_RULES", "Callback", "Run", "Trainer"]

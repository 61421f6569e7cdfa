"""Training: trainer and training loop."""

from canet.training.trainer import Callback, Run, Trainer

__all__ = ["Callback", "Run", "Trainer"]

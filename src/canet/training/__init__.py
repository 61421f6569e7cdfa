"""Training: trainer, training loop and selection rule."""

from canet.training.trainer import Callback, Run, Trainer

__all__ = ["Callback", "Run", "Trainer"]

"""Training of networks: batches, the training loop, and how a run starts or resumes."""

from canet.training.loop import Callback

__all__ = ["Callback"]

"""Models that learn from a task and read a graph: averages of networks, and `auto`."""

from canet.models.auto import AutoTrainer
from canet.models.ensemble import Ensemble, EnsembleReader, Reader

__all__ = ["AutoTrainer", "Ensemble", "EnsembleReader", "Reader"]

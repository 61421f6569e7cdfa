"""Training: the loop, metrics, selection rules and run folders."""

from canet.training.archive import runs_at, unpack_archive, write_archive
from canet.training.checkpoint import RunFolder, find_runs
from canet.training.config import RunConfig
from canet.training.metrics import METRICS
from canet.training.selection import SELECTION_RULES
from canet.training.trainer import Run, Trainer

__all__ = [
    "METRICS",
    "SELECTION_RULES",
    "Run",
    "RunConfig",
    "RunFolder",
    "Trainer",
    "find_runs",
    "runs_at",
    "unpack_archive",
    "write_archive",
]

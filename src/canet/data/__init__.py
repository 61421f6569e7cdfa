"""Data sets and user graphs as a `ShiftTask`: a graph, its splits and its metric.

These imports are fast; those of modules that need torch, such as `canet.data.task`, are not.
"""

from canet.data.benchmarks.catalog import (
    DATASETS,
    TaskDescription,
    describe,
    file_status,
    load_task,
)
from canet.data.benchmarks.dataset import CENTRED_PER_GRAPH, GENERATORS, WITHOUT_SPURIOUS

__all__ = [
    "CENTRED_PER_GRAPH",
    "DATASETS",
    "GENERATORS",
    "WITHOUT_SPURIOUS",
    "TaskDescription",
    "describe",
    "file_status",
    "load_task",
]

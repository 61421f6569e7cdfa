"""Data sets and user graphs as a `ShiftTask`: a graph, its splits and its metric.

`ShiftTask` and `read_graph` are imported when first used, because they need torch. The other
imports are fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from canet.data.benchmarks.catalog import (
    DATASETS,
    TaskDescription,
    describe,
    file_status,
    load_task,
)
from canet.data.benchmarks.dataset import CENTRED_PER_GRAPH, GENERATORS, WITHOUT_SPURIOUS, Dataset

if TYPE_CHECKING:
    from canet.data.graph_files import inspect_graph, read_graph
    from canet.data.task import ShiftTask

__all__ = [
    "CENTRED_PER_GRAPH",
    "DATASETS",
    "GENERATORS",
    "WITHOUT_SPURIOUS",
    "Dataset",
    "ShiftTask",
    "TaskDescription",
    "describe",
    "file_status",
    "inspect_graph",
    "load_task",
    "read_graph",
]


def __getattr__(name: str) -> Any:
    files = "canet.data.graph_files"
    modules = {"ShiftTask": "canet.data.task", "inspect_graph": files, "read_graph": files}
    if name in modules:
        return getattr(import_module(modules[name]), name)
    raise AttributeError(f"module 'canet.data' has no attribute '{name}'")

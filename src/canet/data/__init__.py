"""Raw files → `ShiftTask`: what is the graph, which nodes are for what, how is it scored.

`ShiftTask` and `read_graph` are imported when first used, because they need torch; the rest is
cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canet.data.benchmarks.catalog import (
    DATASETS,
    TaskDescription,
    describe,
    file_status,
    load_task,
)
from canet.data.benchmarks.dataset import CENTRED, GENERATORS, WITHOUT_SPURIOUS, Dataset

if TYPE_CHECKING:
    from canet.data.graph_files import read_graph
    from canet.data.task import ShiftTask

__all__ = [
    "CENTRED",
    "DATASETS",
    "GENERATORS",
    "WITHOUT_SPURIOUS",
    "Dataset",
    "ShiftTask",
    "TaskDescription",
    "describe",
    "file_status",
    "load_task",
    "read_graph",
]


def __getattr__(name: str) -> Any:
    if name == "ShiftTask":
        from canet.data.task import ShiftTask

        return ShiftTask
    if name == "read_graph":
        from canet.data.graph_files import read_graph

        return read_graph
    raise AttributeError(f"module 'canet.data' has no attribute '{name}'")

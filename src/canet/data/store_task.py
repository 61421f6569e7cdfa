"""The task of a graph store, whose splits were chosen when it was written."""

from dataclasses import replace
from pathlib import Path

from canet.data.benchmarks.dataset import STORE_PROTOCOL
from canet.data.graph_store import GraphStore
from canet.data.task import ShiftTask
from canet.data.user_task import user_task
from canet.errors import InputError


def load_store_task(path: str, data_seed: int = 0, root: Path | None = None) -> ShiftTask:
    """Load the task of a store below `root`; splits except `train` and `valid` are test sets."""
    root = root or Path.cwd()
    if not (root / path).is_dir():
        raise InputError(
            f"the graph store '{path}' does not exist in '{root}': move it back, or pass the "
            "folder in which the run was trained (--data-root)"
        )
    task, _, tests = user_task(GraphStore(root / path).open(), seed=data_seed)
    return replace(
        task,
        name=path,
        test_ood=tests,
        test_id=task.test_id[:0],
        shift=STORE_PROTOCOL,
        protocol=STORE_PROTOCOL,
        data_seed=data_seed,
        checked=True,
    )

"""Tasks of user graphs that worker processes can load: from a file, or from a graph store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from canet.data.benchmarks.dataset import STORE_PROTOCOL
from canet.data.graph import check_graph
from canet.data.graph_data import GraphData, GraphObject
from canet.data.graph_files import ReadOptions, read_columns, write_npz
from canet.data.graph_store import GraphStore
from canet.data.task import ShiftTask
from canet.data.user_task import user_task
from canet.errors import InputError, MissingFileError

TASK_FILE = "task.npz"
TEST = "test"


def comparison_task(
    data: GraphObject, metric: str = "accuracy", undirected: bool = False, seed: int = 0
) -> ShiftTask:
    """Return the task of comparing models on a user graph.

    Arguments as for `user_task`. If the graph has no test set, a fifth of the labelled nodes is
    held out: the latest nodes if there are times, else a random sample of each class.
    """
    checked = check_graph(data, undirected=undirected)
    task, _, tests = user_task(
        data, time=data.get("time"), metric=metric, seed=seed, checked=checked, needs_test=True
    )
    return replace(task, test_ood=tests, test_id=task.test_id[:0], checked=True)


def write_task(folder: Path, task: ShiftTask) -> None:
    """Write a task to a folder, for `read_task`."""
    columns = task.data.to_dict()
    splits = {"train_mask": task.train, "val_mask": task.valid, "test_mask": task.test_ood[TEST]}
    for name, nodes in splits.items():
        columns[name] = torch.zeros(task.num_nodes, dtype=torch.bool)
        columns[name][nodes] = True
    columns["metric"] = np.array([task.metric])
    folder.mkdir(parents=True, exist_ok=True)
    write_npz(folder / TASK_FILE, GraphData(**columns))


def read_task(folder: Path | None) -> ShiftTask:
    """Read the task that `write_task` wrote."""
    path = (folder or Path()) / TASK_FILE
    if not path.exists():
        raise MissingFileError(
            f"'{path}' does not exist: pass its folder (--data-root), or run the command on the "
            "graph again"
        )
    data = read_columns(path, ReadOptions())
    return comparison_task(data, read_metric(folder))


def read_metric(folder: Path | None) -> str:
    """Read the metric of the task in a folder."""
    with np.load((folder or Path()) / TASK_FILE, allow_pickle=False) as file:
        return str(file["metric"][0])


def load_store_task(path: str, data_seed: int = 0, root: Path | None = None) -> ShiftTask:
    """Load the task of a graph store; splits other than `train` and `valid` are test sets.

    The path is relative to `root`, by default to the working folder.
    """
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

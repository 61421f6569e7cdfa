"""The task of comparing models on a user graph, and its file, which worker processes read."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from canet.data.graph import check_graph, warn_edges
from canet.data.graph_files import ReadOptions, read_columns, write_npz
from canet.data.raw_graph import GraphObject, RawGraph
from canet.data.task import ShiftTask
from canet.data.user_task import user_task
from canet.errors import InputWarning, MissingFileError

TASK_FILE = "task.npz"
TEST = "test"


def read_comparison(
    source: object, metric: str = "accuracy", undirected: bool | None = None, **columns: Any
) -> ShiftTask:
    """Read a user graph, and return the task of comparing models on it.

    Means and categories of the columns are computed without the test nodes. `columns` are those of
    `canet.read_graph`, such as `label`.
    """
    options, settings = ReadOptions.of(**columns), (metric, bool(undirected))
    data = read_columns(source, options)
    task = comparison_task(data, *settings)
    if data.get("encoding") is not None and data.encoding.roles.split is None:
        options = replace(options, held_out=nodes_to_test(task).numpy())  # known only now
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # they were shown above
            task = comparison_task(read_columns(source, options), *settings)
    warn_edges(task.data.edge_index, undirected)
    return task


def comparison_task(
    data: GraphObject, metric: str = "accuracy", undirected: bool = False
) -> ShiftTask:
    """Return the task of comparing models on a graph that has been read.

    Arguments as for `user_task`. If the graph has no test set, a fifth of the labelled nodes is
    held out: the latest nodes if there are times, else a random sample of each class.

    It is a shifted test set only if its nodes are later than most training nodes, or all of them
    are from environments without training nodes.
    """
    checked = check_graph(data, undirected=undirected)
    task, _, tests = user_task(
        data, time=data.get("time"), metric=metric, checked=checked, needs_test=True
    )
    if not _is_shifted(task):
        return task
    return replace(task, test_ood=tests, test_id=task.test_id[:0], checked=True)


def nodes_to_test(task: ShiftTask) -> Tensor:
    """Return the test nodes of a comparison, whether they are shifted or not."""
    return task.test_ood.get(TEST, task.test_id)


def score_on_test(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the score on the test nodes from those of a summary."""
    return scores.get("test_ood", {}).get(TEST) or scores["test_id"]


def _is_shifted(task: ShiftTask) -> bool:
    """Whether times or environments distinguish the test nodes from the training nodes."""
    graph, test = task.data, task.test_id
    if graph.time is not None and graph.time[test].min() > graph.time[task.train].median():
        return True
    if graph.environment is None:
        return False
    ids = graph.environment[test]
    return bool((ids >= 0).all() and not torch.isin(ids, task.training_environments()).any())


def write_task(folder: Path, task: ShiftTask) -> None:
    """Write a task to a folder, for `read_task`."""
    columns = task.data.to_dict()
    splits = {"train_mask": task.train, "val_mask": task.valid, "test_mask": nodes_to_test(task)}
    for name, nodes in splits.items():
        columns[name] = torch.zeros(task.num_nodes, dtype=torch.bool)
        columns[name][nodes] = True
    columns |= {"metric": np.array([task.metric]), "environments": np.array(task.environments, str)}
    folder.mkdir(parents=True, exist_ok=True)
    write_npz(folder / TASK_FILE, RawGraph(**columns))


def read_task(folder: Path | None) -> ShiftTask:
    """Read the task that `write_task` wrote."""
    path = (folder or Path()) / TASK_FILE
    if not path.exists():
        raise MissingFileError(
            f"'{path}' does not exist: pass its folder (--data-root), or run the command on the "
            "graph again"
        )
    metric, environments = read_names(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # they were shown by `read_comparison`
        task = comparison_task(read_columns(path, ReadOptions()), metric)
    return replace(task, environments=environments, checked=True)


def read_names(folder: Path | None) -> tuple[str, tuple[str, ...]]:
    """Read the metric of the task in a folder, and the names of its environments."""
    with np.load((folder or Path()) / TASK_FILE, allow_pickle=False) as file:
        environments = file.get("environments", ())  # earlier versions did not write them
        return str(file["metric"][0]), tuple(map(str, environments))

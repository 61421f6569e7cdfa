"""The task of a graph store, whose features and edges stay on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from canet.data.checks import check_metric, check_sample_weights
from canet.data.graph_data import GraphData
from canet.data.graph_store import GraphStore
from canet.data.task import ShiftTask
from canet.data.user_graph import UserTask, classes_of, completed_splits, hold_out, warn_if_many
from canet.errors import InputError

PROTOCOL = "store"
"""Name of the protocol: the splits are those of the store."""


def store_task(
    store: GraphStore,
    metric: str = "accuracy",
    seed: int = 0,
    known_classes: np.ndarray | None = None,
) -> UserTask:
    """Return the task of learning the labels of a store; every split except two is a test set.

    Splits and classes follow the rules of `user_task`. Only arrays over the nodes are read.

    Args:
        store: The store; its path is the name of the task.
        metric: Metric of predictions.
        seed: Seed of a random validation set, if the store has none.
        known_classes: The classes of a model whose training continues; None: those of `train`.
    """
    if "labels" not in store:
        raise InputError(
            f"'{store.path}' has no labels: convert the graph again with --label "
            "COLUMN or y.npy, or write it with set_labels"
        )
    names, number = np.unique(np.array(store.classes), return_inverse=True)  # in ascending order
    values = np.append(number, -1)[store.array("labels")]
    splits = _splits(store, values, seed)
    labels = {name: names[np.unique(values[nodes.numpy()])] for name, nodes in splits.items()}
    classes = classes_of(labels, known_classes)
    warn_if_many("classes", len(classes), splits["train"].numel())
    position = np.searchsorted(classes, names)
    is_class = np.isin(names, classes)
    y = torch.from_numpy(np.append(np.where(is_class, position, -1), -1)[values])
    columns: dict[str, Tensor] = {}
    if "environment" in store:
        columns["environment"] = torch.from_numpy(store.array("environment").astype(np.int64))
        warn_if_many("environments", len(store.environments), splits["train"].numel())
    if "sample_weight" in store:
        weights = store.array("sample_weight")
        columns["sample_weight"] = check_sample_weights(weights, len(y), splits["train"])
    check_metric(metric, len(classes), y[splits["valid"]])
    train, valid = splits.pop("train"), splits.pop("valid")
    task = ShiftTask(
        name=str(store.path.absolute()),
        data=GraphData(x=store.x, y=y, store=store, **columns),
        train=train,
        valid=valid,
        test_id=train[:0],
        test_ood=splits,
        metric=metric,  # it was checked
        in_distribution=torch.ones(len(y), dtype=torch.bool),
        shift=PROTOCOL,
        environments=tuple(map(str, store.environments)),
        protocol=PROTOCOL,
        data_seed=seed,
        min_classes=len(classes),
        checked=True,
    )
    return UserTask(task, classes)


def load_store_task(path: str, data_seed: int = 0) -> ShiftTask:
    """Load the task of a run on a store."""
    if not Path(path).is_dir():
        raise InputError(
            f"the graph store '{path}' does not exist: move it back, or train the run again"
        )
    return store_task(GraphStore(path), seed=data_seed).task


def _splits(store: GraphStore, values: np.ndarray, seed: int) -> dict[str, Tensor]:
    """Return the labelled nodes of each split; `train` and `valid` always exist."""
    labelled = torch.from_numpy(values >= 0)
    stored = {name: store.nodes(name) for name in store.splits}
    sets = {name: nodes[labelled[nodes]] for name, nodes in stored.items()}
    splits = completed_splits(sets, labelled)
    if "valid" not in splits:
        times = store.array("time") if "time" in store else None
        splits |= hold_out(splits["train"], values, times, seed)
    return {name: splits[name] for name in dict.fromkeys(("train", "valid", *splits))}

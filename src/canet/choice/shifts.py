"""Shifts simulated with the training data: groups of its nodes that a model is not trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from canet.data.graph_data import GraphData
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.methods.base import TrainingView
from canet.methods.interventions import infer_groups
from canet.nn import Features, SparseMatrix

Kind = Literal["environment", "graph", "time", "features", "degree"]
NUM_GROUPS = 4
FEWEST_NODES = 10
"""Labelled nodes that a group needs to be held out, and that must remain."""
MOST_GROUPS = 5
VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class SimulatedShift:
    """A group of in-distribution nodes that is held out.

    Args:
        name: Such as `without DE`.
        kind: What the groups are made of.
        task: Trains on the other groups; its shifted test set `held out` is the group. The group is
            a graph of its own, as a later graph will be: no edge leads out of it.
    """

    name: str
    kind: Kind
    task: ShiftTask


def simulate_shifts(task: ShiftTask, kinds: tuple[Kind, ...] | None = None) -> list[SimulatedShift]:
    """Shifts made of a task's training and validation nodes, for the first kind that gives some.

    Environments where they are given, else several graphs, else times, else groups that are
    inferred from the features, else from degrees.
    """
    for kind in kinds or ("environment", "graph", "features", "degree"):
        group, names = GROUPS[kind](task)
        shifts = [hold_out(task, group == number, name, kind) for number, name in names.items()]
        if found := [shift for shift in shifts if shift is not None][:MOST_GROUPS]:
            return found
    return []


def hold_out(task: ShiftTask, mask: Tensor, name: str, kind: Kind) -> SimulatedShift | None:
    """The task without the nodes of a mask $[N]$; None where too few are in or out of it."""
    labelled = torch.cat([task.train, task.valid])
    held = labelled[mask[labelled]]
    train, valid = task.train[~mask[task.train]], task.valid[~mask[task.valid]]
    if min(held.numel(), train.numel()) < FEWEST_NODES or task.data.y[train].unique().numel() < 2:
        return None
    if not valid.numel():
        cut = round(VALIDATION_SHARE * train.numel())
        order = torch.randperm(train.numel(), generator=torch.Generator().manual_seed(0))
        train, valid = train[order[cut:]].sort().values, train[order[:cut]].sort().values
    edges = task.data.edge_index
    columns = task.data.to_dict()
    columns["edge_index"] = edges[:, mask[edges[0]] == mask[edges[1]]]
    number = columns.get("batch", torch.zeros_like(task.data.y))
    columns["batch"] = torch.where(mask, number + int(number.max()) + 1, number)
    alone = replace(
        task,
        data=GraphData(**columns),
        train=train,
        valid=valid,
        test_id=held[:0],
        test_ood={"held out": held},
        left_out={},
        in_distribution=task.in_distribution & ~mask,
        checked=True,
    )
    return SimulatedShift(f"without {name}", kind, alone)


Groups = tuple[Tensor, dict[int, str]]
"""Number of each node's group $[N]$, and the names of the groups to hold out."""


def _environments(task: ShiftTask) -> Groups:
    if not task.has_environments:
        return task.train[:0], {}
    ids = task.training_environments().tolist()
    names = task.environments
    return task.data.environment, {i: names[i] if i < len(names) else str(i) for i in ids}


def _graphs(task: ShiftTask) -> Groups:
    number = task.data.get("batch")
    if number is None:
        return task.train[:0], {}
    ids = number[task.train].unique().tolist()
    return number, {i: f"graph {i}" for i in ids} if len(ids) > 1 else {}


def _features(task: ShiftTask) -> Groups:
    x = task.data.x
    features: Features = SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x
    inside = task.in_distribution.nonzero().squeeze(1)
    view = TrainingView(
        x=features,
        edge_index=task.data.edge_index,
        observed=inside,
        train=task.train,
        y=task.data.y[task.train],
        read=lambda nodes: (features, ()),
        field=lambda: inside,
    )
    try:
        group = infer_groups(view, NUM_GROUPS)
    except CanetError:
        return task.train[:0], {}
    return group, {number: f"group {number + 1}" for number in range(NUM_GROUPS)}


def _degrees(task: ShiftTask) -> Groups:
    degree = torch.bincount(task.data.edge_index[1], minlength=task.num_nodes).numpy()
    inside = task.in_distribution.numpy()
    cuts = np.unique(np.quantile(degree[inside], [0.25, 0.5, 0.75]))
    group = torch.from_numpy(np.searchsorted(cuts, degree, side="right"))
    group[~task.in_distribution] = -1
    return group, {number: f"degree group {number + 1}" for number in range(len(cuts) + 1)}


GROUPS = {
    "environment": _environments,
    "graph": _graphs,
    "features": _features,
    "degree": _degrees,
}

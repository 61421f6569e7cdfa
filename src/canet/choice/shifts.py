"""Shifts simulated with the training data: groups of its nodes that a model is not trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from canet.data.graph_data import GraphData
from canet.data.task import ShiftTask
from canet.errors import CanetError, listed
from canet.methods import TrainingView
from canet.methods.interventions import infer_groups
from canet.nn import SparseMatrix
from canet.util.sparse import select_rows

Kind = Literal["environment", "time", "graph", "features"]
NUM_GROUPS = 4
"""Groups that are inferred from features."""
MOST_SHIFTS = 5
FEWEST_NODES = 10
"""Labelled nodes that a group needs to be held out, and that must remain."""
VALIDATION_SHARE = 0.2
LATEST = {"latest quarter": 0.75, "latest half": 0.5}
HELD_OUT = "held out"


@dataclass(frozen=True)
class SimulatedShift:
    """A part of the training data that is held out.

    Args:
        name: Such as `without DE`.
        kind: What the part was chosen by.
        task: Trains on the rest; its shifted test set is the part. That is a graph of its own, as
            a later graph will be: no edge joins it and the rest.
    """

    name: str
    kind: Kind
    task: ShiftTask


def simulate_shifts(task: ShiftTask) -> list[SimulatedShift]:
    """Shifts made of a task's training and validation nodes; nothing else of it is read.

    Each environment is held out in turn where environments are given, else the latest nodes where
    times are, else each graph where there are several, else groups with similar features.
    """
    task = training_part(task)
    for kind, parts in PARTS.items():
        shifts = [hold_out(task, mask, name, kind) for name, mask in parts(task)]
        if found := [shift for shift in shifts if shift is not None]:
            return found
    return []


def training_part(task: ShiftTask) -> ShiftTask:
    """The task on the nodes that exist at training time alone, without its shifted test sets."""
    inside = task.in_distribution.nonzero().squeeze(1)
    number = torch.full((task.num_nodes,), -1)
    number[inside] = torch.arange(inside.numel())
    edges = number[task.data.edge_index]
    columns = {
        name: select_rows(column, inside) if name == "x" else column[inside]
        for name in ("x", "y", "environment", "batch", "time")
        if (column := task.data.get(name)) is not None
    }
    columns["edge_index"] = edges[:, (edges >= 0).all(dim=0)]
    return replace(
        task,
        data=GraphData(**columns),
        train=number[task.train],
        valid=number[task.valid],
        test_id=number[task.test_id],
        test_ood={},
        left_out={},
        in_distribution=torch.ones(inside.numel(), dtype=torch.bool),
        checked=True,
    )


def hold_out(task: ShiftTask, mask: Tensor, name: str, kind: Kind) -> SimulatedShift | None:
    """The task without the nodes of a mask $[N]$; None where too few are in or out of it."""
    labelled = torch.cat([task.train, task.valid])
    held = labelled[mask[labelled]]
    train, valid = task.train[~mask[task.train]], task.valid[~mask[task.valid]]
    if valid.numel() < FEWEST_NODES:
        train = torch.cat([train, valid])
        cut = round(VALIDATION_SHARE * train.numel())
        order = torch.randperm(train.numel(), generator=torch.Generator().manual_seed(0))
        train, valid = train[order[cut:]].sort().values, train[order[:cut]].sort().values
    y = task.data.y
    one_class = [y[nodes].unique().numel() < 2 for nodes in (train, valid, held)]
    undefined = any(one_class) if task.metric == "roc_auc" else one_class[0]
    if min(held.numel(), train.numel()) < FEWEST_NODES or not valid.numel() or undefined:
        return None
    columns = task.data.to_dict()
    edges = columns["edge_index"]
    columns["edge_index"] = edges[:, mask[edges[0]] == mask[edges[1]]]
    if (graph := columns.get("batch")) is not None:
        columns["batch"] = torch.where(mask, graph + int(graph.max()) + 1, graph)
    alone = replace(
        task,
        data=GraphData(**columns),
        train=train,
        valid=valid,
        test_id=held[:0],
        test_ood={HELD_OUT: held},
        in_distribution=~mask,
        checked=True,
    )
    return SimulatedShift(f"without {name}", kind, alone)


Part = tuple[str, Tensor]
"""Name of a part, and the mask $[N]$ of its nodes."""


def _environments(task: ShiftTask) -> Iterator[Part]:
    if task.has_environments:
        ids, names = task.training_environments(), task.environments
        labels = [names[i] if i < len(names) else str(i) for i in ids.tolist()]
        yield from _each(task.data.environment, ids, labels)


def _latest(task: ShiftTask) -> Iterator[Part]:
    time = task.data.get("time")
    if time is not None:
        known = time[torch.cat([task.train, task.valid])]
        for name, share in LATEST.items():
            yield name, time > known.quantile(share)


def _graphs(task: ShiftTask) -> Iterator[Part]:
    graph = task.data.get("batch")
    if graph is not None:
        ids = graph[task.train].unique()
        yield from _each(graph, ids, [f"graph {i}" for i in ids.tolist()])


def _groups(task: ShiftTask) -> Iterator[Part]:
    x = task.data.x
    features = SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x
    every = torch.arange(task.num_nodes)
    view = TrainingView(
        x=features,
        edge_index=task.data.edge_index,
        observed=every,
        train=task.train,
        y=task.data.y[task.train],
        read=lambda nodes: (features, ()),
        field=lambda: every,
    )
    try:
        group = infer_groups(view, NUM_GROUPS)
    except CanetError:
        return
    ids = torch.arange(NUM_GROUPS)
    yield from _each(group, ids, [f"group {i + 1}" for i in ids.tolist()])


def _each(group: Tensor, ids: Tensor, names: list[str]) -> Iterator[Part]:
    """Each group by its id, or several at once where there are many."""
    if ids.numel() > 1:
        for i in range(min(MOST_SHIFTS, ids.numel())):
            yield listed(names[i::MOST_SHIFTS]), torch.isin(group, ids[i::MOST_SHIFTS])


PARTS: dict[Kind, Callable[[ShiftTask], Iterator[Part]]] = {
    "environment": _environments,
    "time": _latest,
    "graph": _graphs,
    "features": _groups,
}
"""Ways to choose the part that is held out; the first that applies is taken."""

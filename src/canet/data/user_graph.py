"""A graph of the user → `ShiftTask`: what is read from where, and what is rejected."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from canet.data.arrays import word_for
from canet.data.checks import (
    check_disjoint,
    check_edges,
    check_features,
    check_graphs,
    check_groups,
    check_metric,
    check_nodes,
    check_times,
    one_way,
)
from canet.data.graph_data import AnyGraph, GraphData, is_graph
from canet.data.labels import check_labels
from canet.data.task import ShiftTask
from canet.errors import InputError, InputWarning, listed
from canet.util.sparse import from_scipy, unique_edges

VALIDATION_SHARE = 0.2
MAX_STORED = 0.1
"""Share of dense features that are not zero, up to which they are read as sparse ones."""


@dataclass(frozen=True)
class UserGraph:
    """A graph whose input has been checked: features `x` $[N, D]$, float32, dense or sparse CSR,
    edges $[2, E]$, and where several graphs came in one the number $[N]$ of each node's `graph`.
    """

    x: Tensor
    edge_index: Tensor
    graph: Tensor | None

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])


class UserTask(NamedTuple):
    """A task made of a user's graph, and the classes $[C]$ that its class ids stand for."""

    task: ShiftTask
    classes: np.ndarray


def read_user_graph(data: Any, graph: Any = None, undirected: bool = False) -> UserGraph:
    """Check features, edges and graph numbers of a PyG `Data`, which stays as it is.

    An edge that is given several times counts once, however `undirected` is set.

    Args:
        data: Has `x` and `edge_index`.
        graph: Number or name $[N]$ of each node's graph; `data.batch` where None.
        undirected: Whether each edge is read both ways, or as given.
    """
    if not is_graph(data):
        raise InputError(
            f"the graph is a {type(data).__name__}: give a torch_geometric.data.Data with x and "
            "edge_index, or a file to canet.read_graph"
        )
    x = sparse_if_faster(check_features(data.get("x")))
    n = x.shape[0]
    if data.get("edge_index") is None and data.get("adj_t") is not None:
        raise InputError("the graph has adj_t in place of edge_index: undo the ToSparseTensor")
    edges = check_edges(data.get("edge_index"), n)
    given = data.to_dict().get("num_nodes")
    if given is not None and given != n:
        raise InputError(f"num_nodes is {given} and x has {n} rows: give features to every node")
    ids = data.get("node_id")
    if ids is not None and len(ids) != n:
        raise InputError(f"node_id names {len(ids)} nodes and x has {n} rows: name every node")
    once = unique_edges(edges, n, both_ways=undirected)
    if undirected or once.shape[1] < edges.shape[1]:  # else the order stays, and with it all bits
        edges = once
    numbers = data.get("batch") if graph is None else graph
    if numbers is None:
        return UserGraph(x, edges, None)
    return UserGraph(x, edges, check_graphs(numbers, n, "graph"))


def user_task(
    data: Any,
    train: Any = None,
    valid: Any = None,
    environment: Any = None,
    time: Any = None,
    *,
    metric: str = "accuracy",
    seed: int = 0,
    checked: UserGraph | None = None,
) -> UserTask:
    """The task of learning the labels of a user's graph.

    What is not given is taken from the graph: `train_mask`, `val_mask`, `test_mask`,
    `environment`, `time`, `batch`. Nodes without label are in no set. Without a validation set, or
    with a `val_mask` of no node, one is made of the training nodes: the latest part where there are
    times, else at random, the same share of each class.

    Args:
        data: Has `x`, `edge_index` and `y`: integers or strings, -1, NaN or None where unknown.
        train, valid: Masks or ids.
        environment: Integers or strings $[N]$.
        time: Numbers or dates $[N]$.
        metric: How predictions are scored.
        seed: Of the random validation set.
        checked: What `read_user_graph` has made of the graph, if it has.
    """
    checked = checked or read_user_graph(data)
    n = checked.num_nodes
    if unread := [name for name in ("edge_weight", "edge_attr") if data.get(name) is not None]:
        warnings.warn(
            f"{' and '.join(unread)} of the graph: not read, because every edge counts the same",
            InputWarning,
            stacklevel=3,  # the caller of fit
        )
    if data.get("y") is None:
        raise InputError(
            "fit requires y to be passed, but the target y is None: put the labels into data.y"
        )
    values, known = check_labels(data.y, n)
    splits = _node_sets(data, torch.from_numpy(known), {"train": train, "valid": valid})
    times = data.get("time") if time is None and "valid" not in splits else time
    stamps = None if times is None else check_times(times, n)
    if "valid" not in splits:
        splits |= _hold_out(splits["train"], values, stamps, seed)
    check_disjoint(splits, n)
    classes = _classes(splits, values)
    groups = data.get("environment") if environment is None else environment
    names: tuple[str, ...] = ()
    columns: dict[str, Tensor] = {}
    if groups is not None:
        group_names, columns["environment"] = check_groups(groups, n, "environment")
        names = tuple(map(str, group_names))
    if checked.graph is not None:
        columns["batch"] = checked.graph
    if stamps is not None:
        columns["time"] = torch.from_numpy(stamps)
    y = class_ids(values, known, classes)
    check_metric(metric, len(classes), y[splits["valid"]])
    task = ShiftTask(
        name="user graph",
        data=GraphData(x=checked.x, edge_index=checked.edge_index, y=y, **columns),
        train=splits["train"],
        valid=splits["valid"],
        test_id=splits.get("test", torch.empty(0, dtype=torch.long)),
        test_ood={},
        metric=metric,  # type: ignore[arg-type]  # it was checked
        in_distribution=torch.ones(n, dtype=torch.bool),
        shift="user graph",
        environments=names,
        checked=True,
    )
    return UserTask(task, classes)


def warn_one_way(edge_index: Tensor) -> None:
    """Warn where few of the edges $[2, E]$ have their reverse and nobody said what they mean."""
    if one_way(edge_index):
        warnings.warn(
            "few edges have their reverse: if the graph is undirected, pass undirected=True (on "
            "the command line --undirected), else undirected=False (--directed)",
            InputWarning,
            stacklevel=3,  # the caller of fit
        )


def sparse_if_faster(x: Tensor) -> Tensor:
    """Features $[N, D]$, sparse where few of them are not zero.

    Products are then at least twice as fast, and a saved model is smaller.
    """
    if x.layout == torch.sparse_csr or np.count_nonzero(x) > MAX_STORED * x.numel():
        return x
    return from_scipy(csr_matrix(x.numpy()))


def class_ids(values: np.ndarray, known: np.ndarray, classes: np.ndarray) -> Tensor:
    """Number $[N]$ of each label among the classes $[C]$, ascending; -1: unknown, or another."""
    y = torch.full((len(values),), -1)
    usable = known & np.isin(values, classes)
    y[torch.from_numpy(usable)] = torch.from_numpy(np.searchsorted(classes, values[usable]))
    return y


def match_classes(y: Any, num_nodes: int, classes: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Class ids $[N]$ of labels among a model's classes, -1: unknown, or another; and the known."""
    values, known = check_labels(y, num_nodes)
    if (values.dtype.kind == "U") != (classes.dtype.kind == "U") and known.any():
        now, before = word_for(values), word_for(classes)
        raise InputError(f"y holds {now} and in training it held {before}: convert it")
    return class_ids(values, known, classes), known


def _node_sets(data: AnyGraph, labelled: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
    """The labelled nodes of `train`, and of `valid` and `test` where there are such sets."""
    sets: dict[str, Tensor] = {}
    for name, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
        chosen = data.get(mask) if given.get(name) is None else given[name]
        if chosen is not None:
            nodes = check_nodes(chosen, labelled.numel(), name)
            if name == "valid" and given["valid"] is None and not nodes.numel():
                continue  # from a split column that names train and test only
            sets[name] = nodes[labelled[nodes]]
    if not sets.get("test", labelled).numel():
        del sets["test"]
    if "train" not in sets:
        rest = labelled.clone()
        for nodes in sets.values():
            rest[nodes] = False
        sets["train"] = rest.nonzero().squeeze(1)
    for name in ("train", "valid"):
        if not sets.get(name, labelled).numel():
            raise InputError(f"{name} is empty: it needs nodes whose label in y is known")
    return {name: sets[name] for name in ("train", "valid", "test") if name in sets}


def _classes(splits: Mapping[str, Tensor], values: np.ndarray) -> np.ndarray:
    """The classes of the training nodes, which the other sets must not go beyond."""
    classes = np.unique(values[splits["train"].numpy()])
    if len(classes) < 2:
        unknown = values.dtype.kind == "i" and (values == -1).any()
        hint = " (-1 is not a class, it marks an unknown label)" if unknown else ""
        raise InputError(
            f"train has one class only, {classes[0]}{hint}: training needs two or more"
        )
    for name, nodes in splits.items():
        strange = np.setdiff1d(values[nodes.numpy()], classes)
        if strange.size:
            raise InputError(
                f"{name} has classes that train lacks ({listed(strange)}): train on "
                "some nodes of each, or leave them out"
            )
    return classes


def _hold_out(
    nodes: Tensor, values: np.ndarray, times: np.ndarray | None, seed: int
) -> dict[str, Tensor]:
    """Training nodes $[m]$ cut in two: those that stay in `train`, and `valid`.

    A class always keeps a node in training. Times do not count where more than half are the last.
    """
    ids = nodes.numpy()
    held = np.zeros(len(ids), dtype=bool)
    if times is not None:
        when = times[ids]
        moments = np.unique(when)[1:]
        if moments.size:
            # The moment after which there is nearest to the wanted share, ties kept together.
            later = len(when) - np.searchsorted(np.sort(when), moments)
            best = np.argmin(np.abs(later - VALIDATION_SHARE * len(ids)))
            held = when >= moments[best]
            held &= np.isin(values[ids], values[ids][~held])  # a class only seen late stays
            held &= held.mean() <= 0.5  # most are of the last moment: no latest part
    if times is None or not held.any():
        generator = np.random.default_rng(seed)
        for label in np.unique(values[ids]):
            of_class = generator.permutation(np.flatnonzero(values[ids] == label))
            held[of_class[: max(1, round(VALIDATION_SHARE * len(of_class)))]] = len(of_class) > 1
    if not held.any():
        raise InputError(
            f"{len(ids)} labelled training nodes are too few to hold some back: give valid, or "
            "more labels"
        )
    return {"train": nodes[torch.from_numpy(~held)], "valid": nodes[torch.from_numpy(held)]}

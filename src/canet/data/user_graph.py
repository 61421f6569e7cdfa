"""Convert a user graph to a `ShiftTask`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from canet.data.arrays import dtype_name
from canet.data.benchmarks.dataset import USER_GRAPH
from canet.data.checks import (
    check_disjoint,
    check_edge_weights,
    check_edges,
    check_features,
    check_graphs,
    check_groups,
    check_metric,
    check_nodes,
    check_sample_weights,
    check_times,
    is_one_way,
)
from canet.data.graph_data import AnyGraph, GraphData, is_graph
from canet.data.labels import check_labels
from canet.data.task import ShiftTask
from canet.errors import InputError, listed, warn_user
from canet.util.sparse import from_scipy, unique_edges

VALIDATION_SHARE = 0.2
FIRST_SPLITS = ("train", "valid")
MANY_GROUPS, NODES_PER_GROUP = 30, 5
"""More classes or environments than this, with fewer nodes each, give a warning."""
MAX_NONZERO_SHARE = 0.1
"""Dense features with at most this share of nonzero entries are converted to sparse ones."""


@dataclass(frozen=True)
class UserGraph:
    """A validated user graph.

    Features `x` are float32 $[N, D]$, dense or sparse CSR. `edge_index` is $[2, E]$. `graph` $[N]$
    is the number of each node's graph; None for a single graph. `edge_weight` $[E]$ and the names
    `node_id` $[N]$ are None if the graph has none.
    """

    x: Tensor
    edge_index: Tensor
    graph: Tensor | None
    edge_weight: Tensor | None = None
    node_id: np.ndarray | None = None

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])

    def rows(self, nodes: Any, name: str = "nodes") -> Tensor:
        """Return the rows of nodes; arguments as for `check_nodes`."""
        row_of = None if self.node_id is None else lambda: self._row_of
        return check_nodes(nodes, self.num_nodes, name, row_of)

    def names(self, rows: np.ndarray) -> np.ndarray:
        """Return the names of nodes; their row numbers if they have none."""
        return rows if self.node_id is None else self.node_id[rows]

    @cached_property
    def _row_of(self) -> dict[str, int]:
        """Name of a node → its row; built when a name is first used."""
        assert self.node_id is not None
        return {str(node): row for row, node in enumerate(self.node_id)}


class UserTask(NamedTuple):
    """The task of a user graph, and the classes $[C]$ of its class ids."""

    task: ShiftTask
    classes: np.ndarray


def read_user_graph(data: Any, graph: Any = None, undirected: bool = False) -> UserGraph:
    """Validate features, edges and graph numbers of a PyG `Data`, which is not changed.

    Duplicate edges are removed; the largest of their weights is kept.

    Args:
        data: Graph with `x` and `edge_index`.
        graph: Number or name $[N]$ of each node's graph; None for `data.batch`.
        undirected: Whether to add the reverse of each edge.
    """
    if not is_graph(data):
        raise InputError(
            f"the graph is a {type(data).__name__}: pass a torch_geometric.data.Data with x and "
            "edge_index, or read a file or tables with canet.read_graph"
        )
    x = sparse_if_faster(check_features(data.get("x")))
    n = x.shape[0]
    if data.get("edge_index") is None and data.get("adj_t") is not None:
        raise InputError(
            "the graph has adj_t but no edge_index: leave out the transform ToSparseTensor"
        )
    edges = check_edges(data.get("edge_index"), n)
    given = data.to_dict().get("num_nodes")
    if given is not None and given != n:
        raise InputError(
            f"num_nodes is {given}, but x has {n} rows: x must have one row for each node"
        )
    ids = data.get("node_id")
    if ids is not None and len(ids) != n:
        raise InputError(
            f"node_id has {len(ids)} entries, but x has {n} rows: pass one id for each node"
        )
    weight = data.get("edge_weight")
    if weight is not None:
        weight = check_edge_weights(weight, edges.shape[1])
    distinct = unique_edges(edges, n, undirected, weight)
    # Keep the order of edges without duplicates: it determines the last bits of results.
    if undirected or distinct[0].shape[1] < edges.shape[1]:
        edges, weight = distinct
    numbers = data.get("batch") if graph is None else graph
    numbers = None if numbers is None else check_graphs(numbers, n, "graph")
    return UserGraph(x, edges, numbers, weight, ids if ids is None else np.asarray(ids))


def user_task(
    data: Any,
    train: Any = None,
    valid: Any = None,
    environment: Any = None,
    time: Any = None,
    *,
    sample_weight: Any = None,
    metric: str = "accuracy",
    seed: int = 0,
    checked: UserGraph | None = None,
    known_classes: np.ndarray | None = None,
    needs_test: bool = False,
) -> UserTask:
    """Return the task of learning the labels of a user graph.

    Arguments that are None are taken from the graph: `train_mask`, `val_mask`, `test_mask`,
    `environment`, `time`, `batch`. Nodes without a label are in no split. If there are no
    validation nodes, some training nodes become the validation set: the latest nodes if `time` is
    known, else a random sample stratified by class.

    Args:
        data: Graph with `x`, `edge_index` and `y` (integers or strings; -1, NaN or None if
            unknown).
        train, valid: Masks or node ids.
        environment: Integers or strings $[N]$.
        time: Numbers or dates $[N]$.
        sample_weight: Weight $[N]$ of each node in the loss; None: `data.sample_weight`, or one.
        metric: Metric of predictions.
        seed: Seed of the random validation set.
        checked: The result of `read_user_graph`, if it was called before.
        known_classes: The classes of a model whose training continues; None: those of `train`.
        needs_test: Whether to hold out a test set, like a validation set, if there is none.
    """
    checked = checked or read_user_graph(data)
    n = checked.num_nodes
    if data.get("edge_attr") is not None:
        warn_user(
            "edge_attr of the graph is ignored: only edge_weight, one number ≥ 0 for each edge, is "
            "used"
        )
    if data.get("y") is None:
        if data.get("encoding") is not None:
            raise InputError("there are no labels: name their column, label='COLUMN' (--label)")
        raise InputError(
            "fit requires y to be passed, but the target y is None: set data.y to the labels"
        )
    encoding = data.get("encoding")
    column = None if encoding is None else encoding.roles.label
    values, known = check_labels(data.y, n, "y" if column is None else f"column '{column}'")
    given = {"train": train, "valid": valid}
    splits = _node_sets(data, torch.from_numpy(known), given, checked)
    needs_test = needs_test and "test" not in splits
    holds_out = needs_test or "valid" not in splits
    times = data.get("time") if time is None and holds_out else time
    stamps = None if times is None else check_times(times, n)
    if needs_test:
        parts = hold_out(splits["train"], values, stamps, seed)
        splits |= {"train": parts["train"], "test": parts["valid"]}
    if "valid" not in splits:
        splits |= hold_out(splits["train"], values, stamps, seed)
    check_disjoint(splits, n)
    labels = {name: np.unique(values[nodes.numpy()]) for name, nodes in splits.items()}
    classes = classes_of(labels, known_classes, values.dtype.kind == "i" and (values == -1).any())
    warn_if_many("classes", len(classes), splits["train"].numel())
    groups = data.get("environment") if environment is None else environment
    names: tuple[str, ...] = ()
    columns: dict[str, Tensor] = {}
    if groups is not None:
        group_names, columns["environment"] = check_groups(groups, n, "environment")
        names = tuple(map(str, group_names))
        warn_if_many("environments", len(names), splits["train"].numel())
    if checked.graph is not None:
        columns["batch"] = checked.graph
    if checked.edge_weight is not None:
        columns["edge_weight"] = checked.edge_weight
    if stamps is not None:
        columns["time"] = torch.from_numpy(stamps)
    weights = data.get("sample_weight") if sample_weight is None else sample_weight
    if weights is not None:
        columns["sample_weight"] = check_sample_weights(weights, n, splits["train"])
    y = class_ids(values, known, classes)
    check_metric(metric, len(classes), y[splits["valid"]])
    task = ShiftTask(
        name=USER_GRAPH,
        data=GraphData(x=checked.x, edge_index=checked.edge_index, y=y, **columns),
        train=splits["train"],
        valid=splits["valid"],
        test_id=splits.get("test", torch.empty(0, dtype=torch.long)),
        test_ood={},
        metric=metric,  # it was checked
        in_distribution=torch.ones(n, dtype=torch.bool),
        shift=USER_GRAPH,
        environments=names,
        min_classes=len(classes),
        checked=True,
    )
    return UserTask(task, classes)


def warn_if_many(name: str, count: int, num_train: int) -> None:
    """Warn if there are so many classes or environments that the column is probably wrong."""
    if count > max(MANY_GROUPS, num_train / NODES_PER_GROUP):
        warn_user(
            f"there are {count:,} {name} for {num_train:,} training nodes: check that you chose "
            "the right column"
        )


def warn_one_way(edge_index: Tensor) -> None:
    """Warn if few of the edges $[2, E]$ have a reverse edge."""
    if is_one_way(edge_index):
        warn_user(
            "few edges also exist in the reverse direction: if the graph is undirected, pass "
            "undirected=True (command line: --undirected), else undirected=False (--directed)"
        )


def sparse_if_faster(x: Tensor) -> Tensor:
    """Return features $[N, D]$ as sparse CSR if few entries are nonzero, else unchanged.

    Sparse products are then at least twice as fast, and a saved model is smaller.
    """
    if x.layout == torch.sparse_csr or np.count_nonzero(x) > MAX_NONZERO_SHARE * x.numel():
        return x
    return from_scipy(csr_matrix(x.numpy()))


def class_ids(values: np.ndarray, known: np.ndarray, classes: np.ndarray) -> Tensor:
    """Return the class id $[N]$ of each label, given sorted classes $[C]$.

    The id is -1 if the label is unknown or not one of the classes.
    """
    y = torch.full((len(values),), -1)
    usable = known & np.isin(values, classes)
    y[torch.from_numpy(usable)] = torch.from_numpy(np.searchsorted(classes, values[usable]))
    return y


def match_classes(y: Any, num_nodes: int, classes: np.ndarray) -> Tensor:
    """Return the class ids $[N]$ of labels for the classes $[C]$ of a model.

    The id is -1 if the label is unknown. Classes that the model does not have are numbered from C.
    """
    if y is None:
        return torch.full((num_nodes,), -1)
    values, known = check_labels(y, num_nodes)
    if (values.dtype.kind == "U") != (classes.dtype.kind == "U") and known.any():
        now, before = dtype_name(values), dtype_name(classes)
        raise InputError(
            f"y contains {now}, but in training it contained {before}: convert it to the same type"
        )
    ids = class_ids(values, known, classes)
    unseen = known & (ids < 0).numpy()
    numbers = np.unique(values[unseen], return_inverse=True)[1]
    ids[torch.from_numpy(unseen)] = torch.from_numpy(numbers) + len(classes)
    return ids


def _node_sets(
    data: AnyGraph, labelled: Tensor, given: dict[str, Any], checked: UserGraph
) -> dict[str, Tensor]:
    """Return the labelled nodes of `train` and, if they exist, of `valid` and `test`."""
    sets: dict[str, Tensor] = {}
    for name, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
        chosen = data.get(mask) if given.get(name) is None else given[name]
        if chosen is not None:
            nodes = checked.rows(chosen, name)
            if name == "valid" and given["valid"] is None and not nodes.numel():
                continue  # a split column with train and test only
            sets[name] = nodes[labelled[nodes]]
    return completed_splits(sets, labelled)


def completed_splits(sets: dict[str, Tensor], labelled: Tensor) -> dict[str, Tensor]:
    """Return sets of labelled nodes, `train` and `valid` first, without empty test sets.

    Without `train`, it has the nodes of the mask `labelled` $[N]$ that are in no other set.
    """
    sets = {name: nodes for name, nodes in sets.items() if nodes.numel() or name in FIRST_SPLITS}
    if "train" not in sets:
        rest = labelled.clone()
        for nodes in sets.values():
            rest[nodes] = False
        sets["train"] = rest.nonzero().squeeze(1)
    for name in FIRST_SPLITS:
        if not sets.get(name, labelled).numel():
            raise InputError(f"{name} contains no node with a known label in y: add such nodes")
    return {name: sets[name] for name in dict.fromkeys((*FIRST_SPLITS, *sets)) if name in sets}


def classes_of(
    labels: Mapping[str, np.ndarray], known: np.ndarray | None, has_unknown: bool = False
) -> np.ndarray:
    """Return the `known` classes, or those of the training nodes.

    No split may have other classes.

    Args:
        labels: Name of a split → its distinct labels.
        known: The classes of a model whose training continues, or None.
        has_unknown: Whether -1 marks unknown labels.
    """
    if known is not None:
        found = np.unique(np.concatenate(list(labels.values())))
        same_type = (known.dtype.kind == "U") == (found.dtype.kind == "U")
        if not same_type or np.setdiff1d(found, known).size:
            raise InputError(
                f"the labels have classes that the earlier model does not know ({listed(found)} "
                f"instead of {listed(known)}): fit without warm_start"
            )
        return known
    classes = labels["train"]
    if len(classes) < 2:
        hint = " (-1 marks an unknown label, it is not a class)" if has_unknown else ""
        raise InputError(
            f"train contains only class {classes[0]}{hint}: training needs at least two classes"
        )
    for name, found in labels.items():
        unseen = np.setdiff1d(found, classes)
        if unseen.size:
            raise InputError(
                f"{name} contains classes that train does not contain ({listed(unseen)}): add "
                f"nodes of these classes to train, or remove them from {name}"
            )
    return classes


def hold_out(
    nodes: Tensor, values: np.ndarray, times: np.ndarray | None, seed: int
) -> dict[str, Tensor]:
    """Split training nodes $[m]$ into `train` and `valid`.

    Every class keeps at least one training node. Times are ignored if the latest nodes would be
    more than half of all nodes.
    """
    ids = nodes.numpy()
    held = np.zeros(len(ids), dtype=bool)
    if times is not None:
        when = times[ids]
        moments = np.unique(when)[1:]
        if moments.size:
            # The time that splits nearest to the wanted share; nodes of one time stay together.
            later = len(when) - np.searchsorted(np.sort(when), moments)
            best = np.argmin(np.abs(later - VALIDATION_SHARE * len(ids)))
            held = when >= moments[best]
            held &= np.isin(values[ids], values[ids][~held])  # keep classes that only appear late
            held &= held.mean() <= 0.5  # most nodes have the last time
    if times is None or not held.any():
        generator = np.random.default_rng(seed)
        for label in np.unique(values[ids]):
            of_class = generator.permutation(np.flatnonzero(values[ids] == label))
            held[of_class[: max(1, round(VALIDATION_SHARE * len(of_class)))]] = len(of_class) > 1
    if not held.any():
        raise InputError(
            f"{len(ids)} labelled training nodes of {len(np.unique(values[ids]))} classes are too "
            "few to hold out a validation set: choose another label column, or label more nodes"
        )
    return {"train": nodes[torch.from_numpy(~held)], "valid": nodes[torch.from_numpy(held)]}

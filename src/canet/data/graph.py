"""A validated user graph: features, neighbours and names, as arrays or memory maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from canet.data.arrays import dtype_name
from canet.data.checks import (
    check_batch,
    check_edge_weights,
    check_edges,
    check_features,
    check_nodes,
    is_one_way,
)
from canet.data.graph_data import MASKS, GraphObject, is_graph
from canet.data.labels import Labels, check_labels
from canet.errors import InputError, warn_user
from canet.util.sparse import Csr, from_scipy, unique_edges

MAX_NONZERO_SHARE = 0.1
"""Dense features with at most this share of nonzero entries are converted to sparse ones.

Sparse products are then at least twice as fast, and a saved model is smaller.
"""
NAMES_AT_ONCE = 2**18
NUM_CHECKED_EDGES = 1_000
"""Edges of a graph store whose reverse edges are looked up."""


@dataclass(frozen=True)
class UserGraph:
    """A validated user graph.

    Features `x` are $[N, D]$, dense or sparse CSR. A graph in memory has edges `edge_index`
    $[2, E]$ and possibly weights `edge_weight` $[E]$. The graph of a store has `csr` instead, and
    its arrays are memory maps. `batch` $[N]$ is the number of each node's graph; None for a single
    graph. `node_id` $[N]$ are the names of the nodes; None if they have none.
    """

    x: Tensor
    edge_index: Tensor | None = None
    batch: Tensor | None = None
    edge_weight: Tensor | None = None
    node_id: np.ndarray | None = None
    csr: Csr | None = None

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])

    @property
    def num_edges(self) -> int:
        """Number of edges, with self-loops."""
        if self.csr is not None:
            return self.csr.num_edges
        return 0 if self.edge_index is None else int(self.edge_index.shape[1])

    def rows(self, nodes: object, name: str = "nodes") -> Tensor:
        """Return the rows of nodes; arguments as for `check_nodes`."""
        find = None if self.node_id is None else self._find
        return check_nodes(nodes, self.num_nodes, name, find)

    def names(self, rows: np.ndarray) -> np.ndarray:
        """Return the names of nodes; their row numbers if they have none."""
        return rows if self.node_id is None else np.asarray(self.node_id[rows])

    def _find(self, names: list[str]) -> dict[str, int]:
        """Return the row of each of these names that the graph has."""
        ids, found = self.node_id, dict[str, int]()
        assert ids is not None
        wanted = np.unique(np.array(names, dtype=str))
        if ids.dtype.kind in "iu":
            numbers = (int(name) for name in names if name.removeprefix("-").isdecimal())
            limits = np.iinfo(ids.dtype)
            inside = [n for n in numbers if limits.min <= n <= limits.max]
            wanted = np.array(inside, dtype=ids.dtype)
        for first in range(0, len(ids), NAMES_AT_ONCE):
            part = ids[first : first + NAMES_AT_ONCE]
            part = part if part.dtype.kind in "iu" else part.astype(str)
            rows = np.flatnonzero(np.isin(part, wanted))
            found |= dict(zip(map(str, part[rows].tolist()), (first + rows).tolist(), strict=True))
        return found


def read_user_graph(
    data: object, batch: object = None, undirected: bool = False, without: Sequence[object] = ()
) -> UserGraph:
    """Validate features, edges and graph numbers of a PyG `Data`, which is not changed.

    Duplicate edges are removed; the largest of their weights is kept.

    Args:
        data: Graph with `x` and `edge_index`, or the result of `GraphStore.open`.
        batch: Number or name $[N]$ of each node's graph; None for `data.batch`.
        undirected: Whether to add the reverse of each edge. A graph store must have them.
        without: Numbers of the columns of x that are set to 0.
    """
    if not is_graph(data):
        raise InputError(
            f"the graph is a {type(data).__name__}: pass a torch_geometric.data.Data with x and "
            "edge_index, or read a file or tables with canet.read_graph"
        )
    if "store" in data:
        if batch is not None:
            raise InputError("a graph store is one graph: leave out batch")
        if without:
            raise InputError("no column of a graph store is left out: pass GraphStore(path).load()")
        if undirected:
            check_both_ways(data)
        return UserGraph(data.x, csr=data.csr, node_id=data.node_id)
    x = check_features(data.get("x"), without)
    if x.layout == torch.strided and np.count_nonzero(x) <= MAX_NONZERO_SHARE * x.numel():
        x = from_scipy(csr_matrix(x.numpy()))
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
    numbers = data.get("batch") if batch is None else batch
    numbers = None if numbers is None else check_batch(numbers, n)
    return UserGraph(x, edges, numbers, weight, ids if ids is None else np.asarray(ids))


def split_sets(data: GraphObject) -> dict[str, Any]:
    """Return the mask or the rows of each split of a graph: `train`, `valid`, and test sets."""
    split = data.get("split")
    if isinstance(split, Labels):
        pairs = enumerate(split.names.tolist())
        return {name: np.flatnonzero(split.codes == number) for number, name in pairs}
    return {name: data[mask] for name, mask in MASKS.items() if data.get(mask) is not None}


def match_classes(y: object, num_nodes: int, classes: np.ndarray) -> Tensor:
    """Return the class ids $[N]$ of labels for the classes $[C]$ of a model.

    The id is -1 if the label is unknown. Classes that the model does not have are numbered from C.
    """
    if y is None:
        return torch.full((num_nodes,), -1)
    labels = check_labels(y, num_nodes)
    if len(labels.names) and (labels.names.dtype.kind == "U") != (classes.dtype.kind == "U"):
        now, before = dtype_name(labels.names), dtype_name(classes)
        raise InputError(
            f"y contains {now}, but in training it contained {before}: convert it to the same type"
        )
    return labels.codes_in(np.append(classes, np.setdiff1d(labels.names, classes)))


def warn_one_way(edge_index: Tensor) -> None:
    """Warn if few of the edges $[2, E]$ have a reverse edge."""
    if is_one_way(edge_index):
        warn_user(
            "few edges also exist in the reverse direction: if the graph is undirected, pass "
            "undirected=True (command line: --undirected), else undirected=False (--directed)"
        )


def check_both_ways(graph: GraphObject) -> None:
    """Reject a graph store with edges in one direction for a model that uses both.

    Some edges are looked up.
    """
    csr, path = graph.csr, graph.store.path
    rowptr, neighbours = csr.rowptr.numpy(), csr.col.numpy()
    if not len(neighbours):
        return
    entries = np.random.default_rng(0).integers(len(neighbours), size=NUM_CHECKED_EDGES)
    targets = np.searchsorted(rowptr, entries, side="right") - 1
    for source, target in zip(neighbours[entries].tolist(), targets.tolist(), strict=True):
        of_source = neighbours[rowptr[source] : rowptr[source + 1]]
        place = np.searchsorted(of_source, target)
        if place == len(of_source) or of_source[place] != target:
            raise InputError(
                f"the model uses each edge in both directions, but '{path}' has an edge from node "
                f"{source} to {target} and none back: convert the graph again with --undirected"
            )

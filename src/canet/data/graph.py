"""The graph: typed columns of nodes and edges, as arrays or memory maps."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeGuard

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from canet.data.arrays import dtype_name
from canet.data.checks import (
    check_batch,
    check_edge_weights,
    check_edges,
    check_features,
    check_nodes,
    edge_notes,
)
from canet.data.graph_store.store import GraphStore
from canet.data.labels import Labels, check_labels
from canet.data.raw_graph import MASKS, GraphObject, NodeSet, RawGraph
from canet.errors import InputError, warn_user
from canet.util.sparse import Csr, components, from_scipy, select_rows, unique_edges

MAX_NONZERO_SHARE = 0.1
"""Dense features with at most this share of nonzero entries become sparse: faster, and smaller."""
NAMES_AT_ONCE = 2**18
COLUMNS = ("x", "edge_index", "batch", "edge_weight", "num_nodes", "node_id", "csr")
"""Columns of a user's graph that its checks use."""
NUM_CHECKED_EDGES = 1_000  # edges of a graph store whose reverse edges are looked up


@dataclass(frozen=True, eq=False)
class Graph:
    """A validated graph, which is never changed. Columns that it does not have are None.

    It is in memory, with `edge_index`, or in a graph store on the disk, with `csr`; then its arrays
    are memory maps. A repeated edge counts once per repetition.
    """

    x: Tensor  # features $[N, D]$, dense or sparse CSR
    edge_index: Tensor | None = None  # edges $[2, E]$ (source, target)
    edge_weight: Tensor | None = None  # weights ≥ 0 of these edges $[E]$
    csr: Csr | None = None  # edges into each node
    # Nodes $[N]$ of a graph on disk that are a graph of their own: edges between them and the
    # others are ignored.
    separated: Tensor | None = None
    batch: Tensor | None = None  # number $[N]$ of the graph of each node; None: a single graph
    node_id: np.ndarray | None = None  # names $[N]$
    y: Tensor | None = None  # class ids $[N]$, -1 if unknown
    environment: Tensor | None = None  # environment ids $[N]$, -1 if unknown
    time: Tensor | None = None  # times $[N]$
    sample_weight: Tensor | None = None  # weights $[N]$ in training
    # Pairs $[m, 2]$ of features: one whose empty cells were filled, and one that is 1 there.
    marks: Tensor | None = None
    store: GraphStore | None = None  # where the graph was opened
    kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    """What was computed from features and edges."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is in the files of a graph store: another process opens them."""
        left_out = {"kept"}
        if self.csr is not None and self.store is not None:
            left_out |= {"x", "csr"}
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, columns: dict[str, Any]) -> None:
        vars(self).update(columns, kept={})
        if self.store is not None and "x" not in columns:
            vars(self).update(x=self.store.x, csr=self.store.csr)

    def __repr__(self) -> str:
        nodes, edges, features = self.num_nodes, self.num_edges, self.x.shape[1]
        return f"Graph({nodes:,} nodes, {edges:,} edges, {features:,} features)"

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the columns that the graph has, by name."""
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return {name: column for name, column in named.items() if column is not None}

    def get(self, name: str, default: object = None) -> Any:
        """Return a column by name, as from a PyG `Data`."""
        column = vars(self).get(name)
        return default if column is None else column

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])

    @property
    def num_edges(self) -> int:
        """Number of edges, with self-loops."""
        if self.csr is not None:
            return self.csr.num_edges
        return 0 if self.edge_index is None else int(self.edge_index.shape[1])

    @property
    def is_weighted(self) -> bool:
        """Whether the edges have weights."""
        return (self.edge_weight if self.csr is None else self.csr.weight) is not None

    @property
    def is_on_disk(self) -> bool:
        """Whether features and edges are memory maps, which are read in pieces."""
        return self.csr is not None

    def with_columns(self, **columns: Any) -> Self:
        """Return the graph with other columns of its nodes; it shares what was computed."""
        other = replace(self, **columns)
        vars(other)["kept"] = self.kept
        return other

    def in_memory(self) -> Self:
        """Return the graph with the arrays of its store in memory."""
        if self.csr is None or self.store is None:
            return self
        loaded = self.store.load()
        edges, weight = loaded.edge_index, loaded.get("edge_weight")
        columns = {"edge_index": edges, "edge_weight": weight, "csr": None, "separated": None}
        graph = replace(self, x=loaded.x, **columns)
        return graph if self.separated is None else graph.separate(self.separated)

    def same_graphs(self, mask: Tensor) -> Tensor:
        """Return a mask $[N]$ of the nodes of all graphs that have a node in a mask."""
        if mask.all() or self.edge_index is None:
            return mask
        graph = self.batch
        if graph is None:
            graph = components(self.edge_index, self.num_nodes, self.edge_weight)
        return torch.isin(graph, graph[mask].unique())

    def with_edges(self, kept: Tensor) -> Self:
        """Return the graph with some of its edges, a mask $[E]$."""
        assert self.edge_index is not None
        weight = None if self.edge_weight is None else self.edge_weight[kept]
        return replace(self, edge_index=self.edge_index[:, kept], edge_weight=weight)

    def separate(self, mask: Tensor) -> Self:
        """Return the graph without edges between the nodes in a mask $[N]$ and the others."""
        batch = self.batch
        if batch is not None:
            batch = torch.where(mask, batch + int(batch.max()) + 1, batch)
        graph = replace(self, batch=batch)
        if self.edge_index is None:
            return replace(graph, separated=mask)
        source, target = mask[self.edge_index]
        return graph.with_edges(source == target)

    def subgraph(self, nodes: Tensor) -> Self:
        """Return the graph of some nodes, ascending, and of the edges between them."""
        assert self.edge_index is not None
        number = torch.full((self.num_nodes,), -1)
        number[nodes] = torch.arange(nodes.numel())
        edges = number[self.edge_index]
        is_kept = (edges >= 0).all(dim=0)
        names = ("batch", "node_id", "y", "environment", "time", "sample_weight")
        columns = {name: c[nodes] for name in names if (c := getattr(self, name)) is not None}
        graph = replace(self.with_edges(is_kept), x=select_rows(self.x, nodes), **columns)
        return replace(graph, edge_index=edges[:, is_kept])

    def degree(self, nodes: Tensor) -> Tensor:
        """Return the in-degree $[n]$ of nodes."""
        if self.csr is not None:
            return self.csr.degree(nodes)
        assert self.edge_index is not None
        return torch.bincount(self.edge_index[1], minlength=self.num_nodes)[nodes]

    def known_edges(self, nodes: Tensor) -> Tensor:
        """Return all edges $[2, E]$; of a graph on disk those into some nodes, without loops."""
        if self.csr is None:
            assert self.edge_index is not None
            return self.edge_index
        return self.csr.edges_into(nodes)

    def rows(self, nodes: NodeSet, name: str = "nodes") -> Tensor:
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


def is_graph(data: object) -> TypeGuard[GraphObject]:
    """Whether `data` is a graph; PyG is not imported for the check."""
    pyg = sys.modules.get("torch_geometric.data")
    return isinstance(data, RawGraph | Graph) or (pyg is not None and isinstance(data, pyg.Data))


_checked: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Graph of a user → (`undirected`, `without`) → version of its tensors, and the checked graph."""


def checked_graph(
    data: object, batch: object = None, undirected: bool = False, without: Sequence[object] = ()
) -> Graph:
    """Check a graph as `check_graph` does, once while the user's object exists.

    A graph of tensors is checked again only if a tensor was replaced or changed in place. Changes
    through a numpy array that shares memory with a tensor are not detected. Other graphs are
    checked again in every call.
    """
    version = None if batch is not None or not is_graph(data) else _version(data)
    if version is None:
        return check_graph(data, batch, undirected, without)
    known = _checked.setdefault(data, {})
    key = undirected, ",".join(map(str, without))
    *before, counters, graph = known.get(key, (None, None))
    is_same = all(a is b for a, b in zip(before, version[:-1], strict=False))
    if graph is None or not is_same or counters != version[-1]:
        graph = check_graph(data, None, undirected, without)
        known[key] = *version, graph
    return graph


def _version(data: GraphObject) -> list[Any] | None:
    """Return the columns and the version counters of their tensors; None if there is no counter."""
    columns = [data.get(name) for name in COLUMNS]
    tensors = [column for column in columns[:4] if column is not None]
    if not all(isinstance(t, Tensor) and not t.is_inference() for t in tensors):
        return None
    parts = [p for t in tensors for p in ([t, t.values()] if t.is_sparse_csr else [t])]
    return [*columns, tuple(part._version for part in parts)]


def check_graph(
    data: object, batch: object = None, undirected: bool = False, without: Sequence[object] = ()
) -> Graph:
    """Validate features, edges and graph numbers of a PyG `Data`, which is not changed.

    Duplicate edges are removed; the largest of their weights is kept. `batch` is the number or name
    $[N]$ of each node's graph; None for `data.batch`. `undirected` adds the reverse of each edge; a
    graph store must have them. `without` are the numbers of columns of x that are set to 0.
    """
    if not is_graph(data):
        raise InputError(
            f"the graph is a {type(data).__name__}: pass a torch_geometric.data.Data with x and "
            "edge_index, or read a file or tables with canet.read_graph"
        )
    if "csr" in data:
        if batch is not None:
            raise InputError("a graph store is one graph: leave out batch")
        if without:
            raise InputError(
                "columns of a graph store cannot be left out: load it, GraphStore(path).load(), or "
                "convert the graph again with --without"
            )
        if undirected:
            check_both_ways(data)
        return Graph(data.x, csr=data.csr, node_id=data.node_id, store=data.store)
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
    if ids is not None and np.shape(ids)[:1] != (n,):
        raise InputError(
            f"node_id has {np.size(ids)} entries, but x has {n} rows: pass one id for each node"
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
    ids = None if ids is None else np.asarray(ids)
    return Graph(x, edges, weight, batch=numbers, node_id=ids)


def split_sets(data: GraphObject) -> dict[str, Any]:
    """Return the mask or the rows of each split of a graph: `train`, `valid`, and test sets."""
    split = data.get("split")
    if isinstance(split, Labels):
        pairs = enumerate(split.names.tolist())
        return {name: np.flatnonzero(split.codes == number) for number, name in pairs}
    return {name: data[mask] for name, mask in MASKS.items() if data.get(mask) is not None}


def match_classes(y: object, num_nodes: int, classes: np.ndarray) -> Tensor:
    """Return class ids $[N]$ for the classes $[C]$ of a model: -1 if unknown, C or more if new."""
    if y is None:
        return torch.full((num_nodes,), -1)
    labels = check_labels(y, num_nodes)
    if len(labels.names) and (labels.names.dtype.kind == "U") != (classes.dtype.kind == "U"):
        now, before = dtype_name(labels.names), dtype_name(classes)
        raise InputError(
            f"y contains {now}, but in training it contained {before}: convert it to the same type"
        )
    return labels.codes_in(np.append(classes, np.setdiff1d(labels.names, classes)))


def warn_edges(edge_index: Tensor | None, undirected: bool | None) -> None:
    """Warn about edges $[2, E]$ as `edge_notes` does; None: the graph is on disk."""
    for note in [] if edge_index is None else edge_notes(edge_index, undirected):
        warn_user(note)


def check_both_ways(graph: GraphObject) -> None:
    """Reject a store with one-way edges for a model that uses both directions; test some edges."""
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

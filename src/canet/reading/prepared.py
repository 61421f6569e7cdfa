"""Graphs as models read them: checked, normalised and scaled once for any number of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from typing import Any
from weakref import finalize, ref

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.graph import UserGraph, read_user_graph
from canet.data.graph_data import GraphObject, is_graph
from canet.data.task import ShiftTask
from canet.methods.base import Scaling
from canet.nn import Features, Graph, Operator, ShiftedFeatures
from canet.nn.model import linear_map
from canet.nn.operations import multiply
from canet.reading.pieces import Pieces
from canet.reading.rows import RowReader, pinned
from canet.reading.scaling import CPU, Scaler, prepare_features
from canet.util.devices import has_room
from canet.util.files import scratch_array
from canet.util.memory import return_freed_memory
from canet.util.sparse import Csr, from_scipy, to_scipy

MAX_KEPT = 2**20
"""Numbers of features up to which columns and edges are kept from one model to the next."""
BYTES_PER_NODE = 16  # row pointers and positions
COLUMNS = ("x", "edge_index", "batch", "edge_weight", "num_nodes", "node_id", "csr")
"""Columns of a graph that its checks use."""


class PreparedGraph:
    """A checked graph, in memory or on disk, and what models read from it.

    Args:
        user_graph: The graph.
        groups: Returns the graph number $[N]$ of each node for the scaling of features, or None for
            one graph; by default that of the graph.
        separated: Mask $[N]$ of nodes of a graph on disk that are a graph of their own: edges
            between them and the others are ignored.
        typical: Nodes $[t]$ of a part of a larger graph whose columns determine how all columns are
            scaled; None: all nodes.
        degree: In-degree $[N]$ of the nodes in that larger graph; None: that in this graph.
    """

    def __init__(
        self,
        user_graph: UserGraph,
        groups: Callable[[], Tensor | None] | None = None,
        separated: Tensor | None = None,
        typical: Tensor | None = None,
        degree: Tensor | None = None,
    ) -> None:
        self.user_graph, self.separated = user_graph, separated
        self._typical, self._degree = typical, degree
        self._groups = groups or (lambda: user_graph.batch)
        self._graphs: dict[tuple[tuple[Operator, ...], torch.device], Graph] = {}
        self._csr: dict[torch.device, Csr] = {}
        self._pinned: dict[int, Tensor] = {}
        self._features: dict[Scaling, Features] = {}
        self._scalers: dict[tuple[Scaling, torch.device], Scaler] = {}
        self._with_neighbours: PreparedGraph | None = None
        self._known: tuple[Tensor, Tensor] | None = None

    @property
    def in_pieces(self) -> bool:
        """Whether the graph is on disk, and is predicted in pieces."""
        return self.user_graph.csr is not None

    def graph(self, operators: Sequence[Operator], device: torch.device = CPU) -> Graph:
        """Return the graph for models with these operators; it is normalised on first use.

        It is on the device if the edges fit there, otherwise on the CPU.
        """
        key = tuple(operators), device
        if key not in self._graphs:
            self._graphs[key] = self._build(operators, self._place(device))
        return self._graphs[key]

    def graph_to_draw(self, operators: Sequence[Operator], device: torch.device) -> Graph:
        """Return the graph for drawing neighbours, on a GPU if it can read the edges.

        Edges that do not fit there are in pinned memory, if they have no weights and take at most
        half of the free memory of the machine.
        """
        graph = self.graph(operators, device)
        fits = has_room(BYTES_PER_NODE * self.user_graph.num_nodes, device)
        on_cpu = graph.device.type != device.type
        return graph.drawing_on(device, self._pin) if on_cpu and fits else graph

    def _pin(self, col: Tensor) -> Tensor:
        """Return an array in pinned memory; graphs with the same array share the copy."""
        key = col.data_ptr()
        if key not in self._pinned:
            self._pinned[key] = pinned(col)
        return self._pinned[key]

    def _build(self, operators: Sequence[Operator], place: torch.device) -> Graph:
        user = self.user_graph
        dtype = torch.double if user.x.dtype == torch.double else torch.float
        if user.csr is not None:  # models share the edges
            if place not in self._csr:
                edges = user.csr.to(place)
                if self.separated is not None:
                    edges = edges.within(self.separated.to(place))
                self._csr[place] = edges
            return Graph(self._csr[place], user.num_nodes, operators, dtype=dtype)
        if place != CPU:
            return self.graph(operators).to(place)
        assert user.edge_index is not None
        columns = user.batch, user.edge_weight
        return Graph(user.edge_index, user.num_nodes, operators, *columns, dtype=dtype)

    def _place(self, device: torch.device) -> torch.device:
        """Return the device if it has room for the edges, or else the CPU."""
        user = self.user_graph
        weight, ends = user.edge_weight, user.edge_index
        count = 0 if ends is None else ends.shape[1]
        if user.csr is not None:
            weight, count = user.csr.weight, user.csr.col.numel()
        size = BYTES_PER_NODE * user.num_nodes + (4 if weight is None else 8) * count
        return device if has_room(size, device) else CPU

    def features(self, how: Scaling) -> Features:
        """Return the scaled features of all nodes of a graph in memory."""
        if how not in self._features:
            groups = None if how == "raw" or self._typical is not None else self._groups()
            self._features[how] = prepare_features(self.user_graph.x, groups, how, self._typical)
        return self._features[how]

    def degree(self) -> Tensor:
        """Return the in-degree $[N]$ of the nodes of a graph in memory."""
        if self._degree is not None:
            return self._degree
        assert self.user_graph.edge_index is not None
        return self.user_graph.edge_index[1].bincount(minlength=self.user_graph.num_nodes)

    def rows(
        self, how: Scaling, device: torch.device, uses: Callable[[], Tensor] | None = None
    ) -> RowReader:
        """Return a reader of scaled features on a device; `uses` as for `RowReader`."""
        if not self.in_pieces:
            return RowReader(self.features(how), device, uses)
        x, key = self.user_graph.x, (how, device)
        if key not in self._scalers:
            self._scalers[key] = Scaler(x, self.separated, how, device)
        return RowReader(x, device, uses, self._scalers[key])

    def with_neighbours(self) -> PreparedGraph:
        """Return the graph with the columns x, mean of neighbours, mean of their means, log degree.

        It is computed once. Sparse features stay sparse.
        """
        if self._with_neighbours is None:
            mean = Operator("mean")
            matrix = self.graph([mean]).block.matrices[mean]
            count = matrix.pattern.rowptr.diff() if self._degree is None else self._degree
            x, degree = self.user_graph.x, count.float().log1p()[:, None]
            if x.layout == torch.sparse_csr:
                adjacency, columns = to_scipy(matrix.csr), [to_scipy(x)]
                columns += [adjacency @ columns[-1]]
                columns += [adjacency @ columns[-1], sp.csr_matrix(degree.numpy())]
                joined = from_scipy(sp.hstack(columns).tocsr())
            else:
                near = multiply(matrix, x)
                joined = torch.cat([x, near, multiply(matrix, near), degree.to(x.dtype)], dim=1)
            self._with_neighbours = self.with_features(joined)
        return self._with_neighbours

    def neighbour_columns(
        self, nodes: Tensor, device: torch.device, check: Callable[[], None]
    ) -> tuple[Tensor, Tensor]:
        """Return the columns of `with_neighbours` of nodes $[n]$ of a graph on disk, on the CPU.

        The result is a matrix and the rows $[n]$ of the nodes in it. The last matrix is kept, so
        that its nodes are not computed again. `check` is called often.
        """
        if self._known is not None:
            ids, columns = self._known
            at = torch.searchsorted(ids, nodes).clamp(max=ids.numel() - 1)
            if torch.equal(ids[at], nodes):
                return columns, at
        ids, at = nodes.unique(return_inverse=True)
        columns = torch.from_numpy(scratch_array((ids.numel(), self.num_columns), np.float32))
        end = 0
        for part, found in self.neighbour_parts(ids, device, check):
            columns[end : end + part.numel()] = found.cpu()
            end += part.numel()
        self._known = ids, columns
        return columns, at

    @property
    def num_columns(self) -> int:
        """Number of columns of `with_neighbours`."""
        return 3 * int(self.user_graph.x.shape[1]) + 1

    def neighbour_parts(
        self, nodes: Tensor | None, device: torch.device, check: Callable[[], None]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield different nodes of a graph on disk, ascending, and their `neighbour_columns`."""
        mean = Operator("mean")
        graph = self.graph([mean], device)
        place = graph.device
        reader = self.rows("raw", place, graph.num_readers)

        def rows(ids: Tensor) -> Tensor:
            check()
            return as_dense(reader.rows(ids))

        pieces = Pieces(graph, 1, nodes)
        for ids, near, far in pieces.means(mean, rows, int(self.user_graph.x.shape[1])):
            degree = graph.degree(ids).float().log1p()[:, None]
            yield ids, torch.cat([rows(ids), near, far, degree], dim=1)

    def with_features(self, x: Tensor) -> PreparedGraph:
        """Return the same nodes and edges with other features $[N, D]$."""
        other = copy(self)
        other.user_graph = replace(self.user_graph, x=x)
        other._features, other._scalers, other._with_neighbours = {}, {}, None
        other._known = None
        return other

    def with_edges(
        self, edge_index: Tensor, edge_weight: Tensor | None, graph: Tensor
    ) -> PreparedGraph:
        """Return the same nodes, scaled in the same way, with other edges $[2, E]$ and weights.

        `graph` $[N]$ is the graph number of each node for models that attend over whole graphs.
        """
        other, x = copy(self), self.user_graph.x
        other.user_graph = UserGraph(x, edge_index, graph, edge_weight)
        other._graphs, other._pinned, other._with_neighbours = {}, {}, None
        return other


def forget_large(task: ShiftTask) -> None:
    """Free the memory of what was computed from a large graph; the next model computes it again."""
    for graph in _graphs_of(task).values():
        x = graph.user_graph.x
        if not graph.in_pieces and (x.values() if x.is_sparse_csr else x).numel() > MAX_KEPT:
            graph._graphs, graph._features, graph._with_neighbours = {}, {}, None
            return_freed_memory()


def as_dense(rows: Features) -> Tensor:
    """Return features as a dense matrix."""
    if isinstance(rows, ShiftedFeatures):
        return linear_map(rows, torch.eye(rows.shape[1], device=rows.offset.device))
    return rows if isinstance(rows, Tensor) else rows.csr.to_dense()


def task_graph(task: ShiftTask, hidden: bool) -> PreparedGraph:
    """Return the graph of a task, which all models share while the task exists.

    `hidden` hides the nodes that are not in distribution: they have no edges, and do not influence
    the scaling of the others.
    """
    graphs, data = _graphs_of(task), task.data
    if hidden not in graphs and "csr" in data:
        graph = UserGraph(data.x, csr=data.csr)
        graphs[hidden] = PreparedGraph(graph, separated=data.get("separated"))
    elif hidden not in graphs:
        edges, weight = data.edge_index, data.get("edge_weight")
        if hidden:
            edges, weight = task.training_edges()
        graph = UserGraph(data.x, edges, _numbers(task, hidden), weight)
        graphs[hidden] = PreparedGraph(graph, cache(partial(_groups, ref(task), hidden)))
    return graphs[hidden]


def share_graph(task: ShiftTask, graph: PreparedGraph) -> None:
    """Let models that are trained on a task use its graph, which was prepared before."""
    _graphs_of(task)[False] = graph


_of_task: dict[int, dict[bool, PreparedGraph]] = {}
"""id of a task → whether shifted nodes are hidden → graph. Tasks are not hashable."""


def _graphs_of(task: ShiftTask) -> dict[bool, PreparedGraph]:
    if id(task) not in _of_task:
        finalize(task, _of_task.pop, id(task), None).atexit = False
    return _of_task.setdefault(id(task), {})


def _numbers(task: ShiftTask, hidden: bool) -> Tensor | None:
    """Return the graph number of each node, if the task has them.

    Each hidden node is a graph of its own.
    """
    number: Tensor | None = task.data.get("batch")
    if number is None or not hidden:
        return number
    unique = number.max() + 1 + torch.arange(task.num_nodes)
    return torch.where(task.in_distribution, number, unique)


def _groups(of: ref[ShiftTask], hidden: bool) -> Tensor:
    """Return the graph number of each node for the scaling of features.

    If the task has no graph numbers, the nodes connected to in-distribution nodes are one graph
    (training data) and the others another (new data). Hidden nodes are a separate graph.
    """
    task = of()
    assert task is not None
    number: Tensor | None = task.data.get("batch")
    if number is None:
        number = torch.ones(task.num_nodes, dtype=torch.long)
        number[replace(task, inductive=False, checked=True).observed()] = 0
    if not hidden:
        return number
    return torch.where(task.in_distribution, number, number.max() + 1)


_cache: dict[tuple[int, bool, str], tuple[list[Any], PreparedGraph]] = {}
"""(id of the user's graph, which is not hashable, `undirected`, `without`) → version and graph."""


def prepare_graph(
    data: Any, batch: Any = None, undirected: bool = False, without: Sequence[object] = ()
) -> PreparedGraph:
    """Check a graph and cache the result; arguments as for `read_user_graph`.

    A graph of tensors is checked again only if a tensor was replaced or changed in place. Changes
    through a numpy array that shares memory with a tensor are not detected. Other graphs are not
    cached.
    """
    version = None if batch is not None or not is_graph(data) else _version(data)
    if version is None:
        return PreparedGraph(read_user_graph(data, batch, undirected, without))
    key = id(data), undirected, ",".join(map(str, without))
    cached_version, prepared = _cache.get(key, ([], None))
    if prepared is None or not _same(cached_version, version):
        if prepared is None:
            finalize(data, _cache.pop, key, None).atexit = False
        prepared = PreparedGraph(read_user_graph(data, None, undirected, without))
        _cache[key] = version, prepared
    return prepared


def _version(data: GraphObject) -> list[Any] | None:
    """Return the columns and the version counters of their tensors; None if there is no counter."""
    columns = [data.get(name) for name in COLUMNS]
    tensors = [column for column in columns[:4] if column is not None]
    if not all(isinstance(t, Tensor) and not t.is_inference() for t in tensors):
        return None
    parts = [p for t in tensors for p in ([t, t.values()] if t.is_sparse_csr else [t])]
    return [*columns, tuple(part._version for part in parts)]


def _same(old: list[Any], new: list[Any]) -> bool:
    """Whether two versions have the same objects and counters."""
    return all(a is b for a, b in zip(old[:-1], new[:-1], strict=True)) and old[-1] == new[-1]

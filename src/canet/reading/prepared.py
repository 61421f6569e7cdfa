"""Graphs as models read them: checked, normalised and scaled once for any number of models."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from canet.data.graph import Graph
from canet.data.task import ShiftTask
from canet.methods.base import Scaling
from canet.nn import Features, NormalisedGraph, Operator
from canet.reading.rows import RowReader, pinned
from canet.reading.scaling import CPU, Scaler, prepare_features
from canet.util.devices import has_room
from canet.util.memory import return_freed_memory
from canet.util.sparse import Csr, from_matrix, stacked, to_matrix

MAX_KEPT = 2**20
"""Numbers of features up to which columns and edges are kept from one model to the next."""
BYTES_PER_NODE = 16  # row pointers and positions


class PreparedGraph:
    """A checked graph, in memory or on disk, and what models read from it.

    Args:
        data: The graph.
        groups: Returns the graph number $[N]$ of each node for the scaling of features, or None for
            one graph; by default that of the graph.
        typical: Nodes $[t]$ from which the scaling of the columns is computed, if this graph is a
            part of a larger one; None: all nodes.
        degree: In-degree $[N]$ of the nodes in the larger graph; None: that in this graph.
    """

    def __init__(
        self,
        data: Graph,
        groups: Callable[[], Tensor | None] | None = None,
        typical: Tensor | None = None,
        degree: Tensor | None = None,
    ) -> None:
        self.data = data
        self._typical, self.known_degree = typical, degree
        self._groups = groups or (lambda: data.batch)
        self._graphs: dict[tuple[tuple[Operator, ...], torch.device], NormalisedGraph] = {}
        self._csr: dict[torch.device, Csr] = {}
        self._pinned: dict[int, Tensor] = {}
        self._features: dict[Scaling, Features] = {}
        self._scalers: dict[tuple[Scaling, torch.device], Scaler] = {}
        self.neighbours: dict[torch.dtype, PreparedGraph] = {}
        self.neighbour_rows: tuple[Tensor, Tensor, object] | None = None

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """Return what models read from a graph; it is kept on the graph."""
        if None not in graph.kept:
            graph.kept[None] = None, cls(replace(graph))  # a copy, or each would keep the other
        prepared: Self = graph.kept[None][1]
        return prepared

    @property
    def in_pieces(self) -> bool:
        """Whether the graph is on disk, and is predicted in pieces."""
        return self.data.is_on_disk

    def normalised(
        self, operators: Sequence[Operator], device: torch.device = CPU
    ) -> NormalisedGraph:
        """Return the graph for models with these operators; it is normalised on first use.

        It is on the device if the edges fit there, otherwise on the CPU.
        """
        key = tuple(operators), device
        if key not in self._graphs:
            self._graphs[key] = self._build(operators, self._place(device))
        return self._graphs[key]

    def graph_to_draw(self, operators: Sequence[Operator], device: torch.device) -> NormalisedGraph:
        """Return the graph for drawing neighbours, on a GPU if it can read the edges.

        Edges that do not fit there are in pinned memory, if they have no weights and take at most
        half of the free memory of the machine.
        """
        graph = self.normalised(operators, device)
        fits = has_room(BYTES_PER_NODE * self.data.num_nodes, device)
        on_cpu = graph.device.type != device.type
        return graph.drawing_on(device, self._pin) if on_cpu and fits else graph

    def _pin(self, col: Tensor) -> Tensor:
        """Return an array in pinned memory; graphs with the same array share the copy."""
        key = col.data_ptr()
        if key not in self._pinned:
            self._pinned[key] = pinned(col)
        return self._pinned[key]

    def _build(self, operators: Sequence[Operator], place: torch.device) -> NormalisedGraph:
        user = self.data
        dtype = torch.double if user.x.dtype == torch.double else torch.float
        if user.csr is not None:  # models share the edges
            if place not in self._csr:
                edges = user.csr.to(place)
                if user.separated is not None:
                    edges = edges.within(user.separated.to(place))
                self._csr[place] = edges
            return NormalisedGraph(self._csr[place], user.num_nodes, operators, dtype=dtype)
        if place != CPU:
            return self.normalised(operators).to(place)
        assert user.edge_index is not None
        columns = user.batch, user.edge_weight
        return NormalisedGraph(user.edge_index, user.num_nodes, operators, *columns, dtype=dtype)

    def _place(self, device: torch.device) -> torch.device:
        """Return the device if it has room for the edges, or else the CPU."""
        user = self.data
        size = BYTES_PER_NODE * user.num_nodes + (8 if user.is_weighted else 4) * user.num_edges
        return device if has_room(size, device) else CPU

    def features(self, how: Scaling) -> Features:
        """Return the scaled features of all nodes of a graph in memory."""
        if how not in self._features:
            groups = None if how == "raw" or self._typical is not None else self._groups()
            self._features[how] = prepare_features(self.data.x, groups, how, self._typical)
        return self._features[how]

    def degree(self) -> Tensor:
        """Return the in-degree $[N]$ of the nodes of a graph in memory."""
        if self.known_degree is not None:
            return self.known_degree
        return self.data.degree(torch.arange(self.data.num_nodes))

    def rows(
        self,
        how: Scaling,
        device: torch.device,
        uses: Callable[[], Tensor] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> RowReader:
        """Return a reader of scaled features; `uses` as for `RowReader`, `check` for `Scaler`."""
        if not self.in_pieces:
            return RowReader(self.features(how), device, uses)
        x, key = self.data.x, (how, device)
        if key not in self._scalers:
            self._scalers[key] = Scaler(x, self.data.separated, how, device)
        self._scalers[key].check = check
        return RowReader(x, device, uses, self._scalers[key])

    def with_features(self, x: Tensor) -> Self:
        """Return the same nodes and edges with other features $[N, D]$."""
        other = copy(self)
        other.data = replace(self.data, x=x)
        other._features, other._scalers = {}, {}
        other.neighbours, other.neighbour_rows = {}, None
        return other

    def with_nodes(self, x: Tensor) -> "PreparedGraph":
        """Return the same graph with more nodes $[n, D]$ without edges, scaled on their own."""
        own, degree, count = self.data, self.known_degree, x.shape[0]
        number = torch.zeros(own.num_nodes).long() if own.batch is None else own.batch
        number = torch.cat([number, (number.max() + 1).expand(count)])
        both = from_matrix(stacked(to_matrix(own.x), to_matrix(x)))
        batch = None if own.batch is None else number
        graph = Graph(both, own.edge_index, own.edge_weight, batch=batch)
        degree = None if degree is None else F.pad(degree, (0, count))
        return PreparedGraph(graph, lambda: number, self._typical, degree)

    def with_edges(self, edge_index: Tensor, edge_weight: Tensor | None, graph: Tensor) -> Self:
        """Return the same nodes, scaled in the same way, with other edges $[2, E]$ and weights.

        `graph` $[N]$ is the graph number of each node for models that attend over whole graphs.
        """
        other, x = copy(self), self.data.x
        other.data = Graph(x, edge_index, edge_weight, batch=graph)
        other._graphs, other._pinned, other.neighbours = {}, {}, {}
        return other


def forget_large(graph: Graph) -> None:
    """Free the memory of what was computed from a large graph; the next model computes it again."""
    x = graph.x
    if not graph.is_on_disk and (x.values() if x.is_sparse_csr else x).numel() > MAX_KEPT:
        for _, prepared in graph.kept.values():
            prepared._graphs, prepared._features, prepared.neighbours = {}, {}, {}
        return_freed_memory()


def task_graph(task: ShiftTask, hidden: bool) -> PreparedGraph:
    """Return the graph of a task, which all models share while the task exists.

    `hidden` hides the nodes that are not in distribution: they have no edges, and do not influence
    the scaling of the others.
    """
    kept, inside = task.data.kept, task.in_distribution
    if hidden not in kept or kept[hidden][0] is not inside:
        kept[hidden] = inside, _prepared(task, hidden)
    prepared: PreparedGraph = kept[hidden][1]
    return prepared


def _prepared(task: ShiftTask, hidden: bool) -> PreparedGraph:
    """Return the graph of a task.

    If the task has no graph numbers, the features of the nodes connected to in-distribution nodes
    are scaled as one graph (training data) and the others as another (new data). Hidden nodes are
    a separate graph.
    """
    whole, inside = task.data, task.in_distribution
    if whole.is_on_disk or inside.all():
        return PreparedGraph.of(whole)
    batch = whole.batch
    graph = replace(whole)
    if hidden:
        if batch is not None:  # each hidden node is a graph of its own
            batch = torch.where(inside, batch, batch.max() + 1 + torch.arange(task.num_nodes))
        graph = replace(task.training_graph(), batch=batch)
    return PreparedGraph(graph, cache(partial(_groups, replace(whole), inside, hidden)))


def _groups(whole: Graph, inside: Tensor, hidden: bool) -> Tensor:
    """Return the graph number $[N]$ of each node for the scaling of features."""
    number = whole.batch
    if number is None:
        number = (~whole.same_graphs(inside)).long()
    return torch.where(inside, number, number.max() + 1) if hidden else number

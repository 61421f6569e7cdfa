"""A graph in memory: its normalised matrices, from which receptive fields are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import finalize

import torch
from torch import Tensor

from canet.errors import InputError
from canet.nn.blocks import Block, Operator, ReceptiveField
from canet.nn.graphs import Graphs
from canet.nn.lazy_graph import LazyGraph
from canet.nn.sparse_matrix import Pattern, SparseMatrix
from canet.util.sparse import components

Relabelling = Callable[[Tensor], Tensor]
"""Maps node ids to positions in a receptive field."""
SORTING_RATIO = 64
"""Receptive fields of fewer than 1/64 of the nodes are relabelled by sorting, larger ones with an
array over all nodes."""


class Graph:
    """The normalised matrices of a graph, from which receptive fields are cut.

    Args:
        edge_index: Edges $[2, E]$ (source, target). A repeated edge counts once per repetition.
        num_nodes: $N$.
        operators: The operators of the model.
        graph: Graph number $[N]$ of each node, starting at 0, for models that attend over whole
            graphs. By default each connected component is a graph.
        edge_weight: Weights ≥ 0 of the edges $[E]$; None: one. An edge of weight w counts like w
            edges.
        dtype: Type of the matrices; None: the default of torch.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        operators: Sequence[Operator],
        graph: Tensor | None = None,
        edge_weight: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.num_nodes = num_nodes
        matrices = {
            op: operator_matrix(edge_index, num_nodes, op, edge_weight, dtype)
            for op in operators
            if op.kind != "graph"
        }
        self._graph: Tensor | None = None
        if len(matrices) < len(operators):
            found = components(edge_index, num_nodes) if graph is None else graph
            self._graph = found.to(edge_index.device).long()
        graphs = None if self._graph is None else Graphs(self._graph, self._graph)
        is_weighted = edge_weight is not None and bool((edge_weight != 1).any())
        self.block = Block(num_nodes, num_nodes, matrices, graphs, is_weighted)
        self._block_on = {edge_index.device: self.block}
        # Other tensors with the same memory: `cached_graph` must notice the end of the caller's.
        weight = None if edge_weight is None or not is_weighted else edge_weight.data
        self._edges = edge_index.data, weight
        self._operators, self._dtype = tuple(operators), dtype
        self._lazy_on: dict[torch.device, LazyGraph] = {}

    def whole(self, num_layers: int, device: torch.device | str = "cpu") -> ReceptiveField:
        """Return all nodes, with the same block for each layer.

        The block is copied to each device only once.
        """
        device = torch.device(device)
        if device not in self._block_on:
            self._block_on[device] = self.block.to(device)
        nodes = torch.arange(self.num_nodes, device=device)
        return ReceptiveField(nodes, (self._block_on[device],) * num_layers)

    def receptive_field(self, nodes: Tensor, num_layers: int) -> ReceptiveField:
        """Return exactly the part of the graph that reaches `nodes` $[n]$ in `num_layers` hops.

        For models that attend over whole graphs, this is the whole graph of each node. A node that
        occurs several times in `nodes` is predicted several times and read once.
        """
        blocks: list[Block] = []
        is_small = self._graph is None and nodes.numel() * SORTING_RATIO < self.num_nodes
        for _ in range(num_layers):
            rows = self.block.select_rows(nodes)
            read = [matrix.pattern.col for matrix in rows.matrices.values()]
            sources, relabel = (
                _relabel_by_sorting(nodes, read) if is_small else self._relabel(nodes, read)
            )
            matrices = {
                op: SparseMatrix(
                    Pattern(matrix.pattern.rowptr, relabel(matrix.pattern.col), sources.numel()),
                    matrix.value,
                )
                for op, matrix in rows.matrices.items()
            }
            graphs = None
            if self._graph is not None:
                is_first = relabel(sources) == torch.arange(sources.numel(), device=nodes.device)
                graphs = Graphs(self._graph[nodes], torch.where(is_first, self._graph[sources], -1))
            sizes = sources.numel(), nodes.numel()
            blocks.append(Block(*sizes, matrices, graphs, self.block.is_weighted))
            nodes = sources
        return ReceptiveField(nodes, tuple(reversed(blocks)))

    def sampled_field(self, nodes: Tensor, fanout: Sequence[int], seed: int = 0) -> ReceptiveField:
        """Draw a receptive field of `nodes` $[n]$ with some random neighbours of each node.

        Arguments as for `LazyGraph.sampled_field`. The field is on the device of `nodes`.
        """
        return self.lazy(nodes.device).sampled_field(nodes, fanout, seed)

    def lazy(self, device: torch.device) -> LazyGraph:
        """Return the graph without normalised matrices; it is copied to each device only once."""
        if device not in self._lazy_on:
            edges, weight = self._edges
            weight = None if weight is None else weight.to(device)
            graph = None if self._graph is None else self._graph.to(device)
            arguments = self.num_nodes, self._operators, weight, self._dtype, graph
            self._lazy_on[device] = LazyGraph.from_edges(edges.to(device), *arguments)
        return self._lazy_on[device]

    def _relabel(self, nodes: Tensor, read: Sequence[Tensor]) -> tuple[Tensor, Relabelling]:
        """Return `nodes` $[n]$, followed by the other nodes in `read` in ascending order, and the
        map from node ids to their positions.
        """
        position = nodes.new_full((self.num_nodes,), -1)
        position[nodes] = torch.arange(nodes.numel(), device=nodes.device)
        reached = self._in_graphs_of(nodes)
        for ids in read:
            reached[ids] = True
        (new,) = (reached & (position < 0)).nonzero(as_tuple=True)
        sources = torch.cat([nodes, new])
        position[new] = torch.arange(nodes.numel(), sources.numel(), device=nodes.device)
        return sources, lambda ids: position[ids]

    def _in_graphs_of(self, nodes: Tensor) -> Tensor:
        """Mask $[N]$ of the nodes in the same graphs as `nodes`; all False if graphs are unused."""
        if self._graph is None:
            return torch.zeros(self.num_nodes, dtype=torch.bool, device=nodes.device)
        chosen = torch.zeros(int(self._graph.max()) + 1, dtype=torch.bool, device=nodes.device)
        chosen[self._graph[nodes]] = True
        return chosen[self._graph]


_graphs: dict[tuple[Any, ...], tuple[tuple[int, ...], Graph]] = {}


def cached_graph(
    edge_index: Tensor,
    num_nodes: int,
    operators: Sequence[Operator],
    graph: Tensor | None = None,
    edge_weight: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Graph:
    """Return the :class:`Graph` of a tensor of edges and cache it while that tensor exists.

    The graph is built again if a tensor was changed in place. Arguments as for :class:`Graph`.
    """
    key = id(edge_index), num_nodes, tuple(operators), id(graph), id(edge_weight), dtype
    tensors = [t for t in (edge_index, graph, edge_weight) if t is not None]
    version = tuple(0 if t.is_inference() else t._version for t in tensors)
    cached_version, built = _graphs.get(key, (None, None))
    if built is None or cached_version != version:
        if built is None:
            for tensor in tensors:
                finalize(tensor, _graphs.pop, key, None).atexit = False
        if edge_index.numel() and not 0 <= edge_index.min() <= edge_index.max() < num_nodes:
            wrong = edge_index[(edge_index < 0) | (edge_index >= num_nodes)][0]
            raise InputError(f"edge_index contains node {wrong}, but x has {num_nodes} rows")
        if edge_weight is not None and edge_weight.shape != edge_index.shape[1:]:
            raise InputError(
                f"edge_weight has shape {list(edge_weight.shape)}, but there are "
                f"{edge_index.shape[1]:,} edges: pass one weight per edge"
            )
        if edge_weight is not None and not (edge_weight >= 0).all():
            raise InputError("edge_weight must be numbers ≥ 0")
        built = Graph(edge_index, num_nodes, operators, graph, edge_weight, dtype)
        _graphs[key] = version, built
    return built


def _relabel_by_sorting(nodes: Tensor, read: Sequence[Tensor]) -> tuple[Tensor, Relabelling]:
    """Like `Graph._relabel`, at a cost that does not depend on the size of the graph."""
    reached = torch.cat([nodes, *read]).unique()
    sources = torch.cat([nodes, reached[~torch.isin(reached, nodes)]])
    order = sources.argsort(stable=True)
    ascending = sources[order]
    return sources, lambda ids: order[torch.searchsorted(ascending, ids.long())]


def operator_matrix(
    edge_index: Tensor,
    num_nodes: int,
    operator: Operator,
    edge_weight: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> SparseMatrix:
    """Return the matrix $[N, N]$ of an operator for edges $[2, E]$; rows are destinations.

    With weights $[E]$, A has them as entries and degrees are sums of weights. Self-loops that are
    added have weight 1.
    """
    src, dst = edge_index if operator.direction == "along" else edge_index.flip(0)
    value = torch.ones(src.numel(), device=src.device, dtype=dtype)
    if edge_weight is not None:
        value = edge_weight.detach().to(value)
    if operator.kind in ("renormalised", "attention"):
        loops = torch.arange(num_nodes, device=src.device)
        no_loop = src != dst
        src, dst = torch.cat([src[no_loop], loops]), torch.cat([dst[no_loop], loops])
        value = torch.cat([value[no_loop], value.new_ones(num_nodes)])
    if operator.kind in ("symmetric", "renormalised", "mean"):
        weights = None if edge_weight is None else value
        degree = torch.bincount(dst, weights, minlength=num_nodes).to(value.dtype)
        if operator.kind == "mean":
            share = degree.reciprocal().nan_to_num(posinf=0.0)[dst]
        else:
            scale = degree.rsqrt().nan_to_num(posinf=0.0)
            share = scale[src] * scale[dst]
        value = share if edge_weight is None else share * value
    return SparseMatrix.from_coo(dst, src, value, (num_nodes, num_nodes))

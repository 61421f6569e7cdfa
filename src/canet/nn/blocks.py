"""Blocks: one layer's neighbourhood, cut and normalised once per graph.

A model sees a stack of L blocks and nothing else of the graph. The same forward pass serves the
whole graph (one block, L times) and the receptive field of some nodes (exactly the part that can
reach them in L hops); a sampled field would be a stack of thinner blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from weakref import finalize

import torch
from torch import Tensor

from canet.errors import InputError
from canet.nn.graphs import Graphs
from canet.nn.sparse_matrix import Pattern, SparseMatrix
from canet.util.sparse import components

Kind = Literal["symmetric", "renormalised", "mean", "sum", "attention", "graph"]
Direction = Literal["along", "against"]
Place = Callable[[Tensor], Tensor]
"""Node ids → their places in a field."""
MANY = 64
"""A field of fewer than one node in so many is found by sorting, else by marking all nodes."""


@dataclass(frozen=True)
class Operator:
    r"""Which matrix a layer multiplies with, or what it attends over.

    Args:
        kind: With $d$ the number of incoming edges,
            `symmetric`: $D^{-1/2} A D^{-1/2}$, zero where a degree is zero (CaNet-GCN);
            `renormalised`: the same of $A + I$ (Kipf and Welling's GCN);
            `mean`: $D^{-1} A$, zero where a degree is zero;
            `sum`: $A$;
            `attention`: the pattern of $A + I$, each node once its own neighbour;
            `graph`: every node of the same graph, which is no matrix but :class:`Graphs`.
        direction: `along` an edge (its target reads its source) or `against` it.
    """

    kind: Kind
    direction: Direction = "along"


@dataclass(frozen=True)
class Block:
    """One layer's neighbourhood: matrices from source nodes to destination nodes.

    The destinations are the first `num_dst` of the `num_src` source nodes. `graphs` says who is in
    one graph, for models that read whole graphs.
    """

    num_src: int
    num_dst: int
    matrices: Mapping[Operator, SparseMatrix]
    graphs: Graphs | None = None

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Block:
        moved = {op: matrix.to(device, dtype) for op, matrix in self.matrices.items()}
        graphs = None if self.graphs is None else self.graphs.to(device)
        return Block(self.num_src, self.num_dst, moved, graphs)

    def select_rows(self, nodes: Tensor) -> Block:
        """The given destinations $[k]$, in their order, with all sources."""
        matrices = {op: matrix.select_rows(nodes) for op, matrix in self.matrices.items()}
        graphs = None if self.graphs is None else self.graphs.select_readers(nodes)
        return Block(self.num_src, nodes.numel(), matrices, graphs)

    def with_copies(self, n: int, num_dst: int) -> Block:
        """Two copies of the first n nodes in front, and of the others the first `num_dst` rows.

        A copy reads its node's neighbours, and itself in place of its node; nobody else reads it.
        Of its node's whole graph it reads every node's own state.
        """
        devices = [matrix.value.device for matrix in self.matrices.values()]
        nodes = torch.arange(self.num_dst, device=devices[0] if devices else None)
        node = torch.cat([nodes[:n], nodes[:n], nodes[:num_dst]])
        rows, matrices = self.select_rows(node), {}
        for operator, matrix in rows.matrices.items():
            row, col = matrix.pattern.row, matrix.pattern.col
            col = torch.where(col == node[row], row, col + 2 * n)
            pattern = Pattern(matrix.pattern.rowptr, col, self.num_src + 2 * n)
            matrices[operator] = SparseMatrix(pattern, matrix.value)
        graphs = None if rows.graphs is None else rows.graphs.with_copies(2 * n)
        return Block(self.num_src + 2 * n, num_dst + 2 * n, matrices, graphs)


@dataclass(frozen=True)
class ReceptiveField:
    """What a model reads to predict some nodes.

    Args:
        nodes: Ids $[n]$ of the nodes whose features are read, the predicted ones first.
        blocks: One block per layer, the first layer's first.
    """

    nodes: Tensor
    blocks: tuple[Block, ...]

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> ReceptiveField:
        moved: dict[int, Block] = {}
        for block in self.blocks:
            if id(block) not in moved:
                moved[id(block)] = block.to(device, dtype)
        return ReceptiveField(
            self.nodes.to(device), tuple(moved[id(block)] for block in self.blocks)
        )


class Graph:
    """A graph's matrices, normalised once, from which fields are cut.

    Args:
        edge_index: Edges $[2, E]$ (source, target); repeated edges count as often as they stand.
        num_nodes: $N$.
        operators: What a model reads.
        graph: Number $[N]$ of each node's graph, from 0 on, for models that read whole graphs;
            by default that of its connected component.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        operators: Sequence[Operator],
        graph: Tensor | None = None,
    ) -> None:
        self.num_nodes = num_nodes
        matrices = {
            op: operator_matrix(edge_index, num_nodes, op) for op in operators if op.kind != "graph"
        }
        self._graph: Tensor | None = None
        if len(matrices) < len(operators):
            found = components(edge_index, num_nodes) if graph is None else graph
            self._graph = found.to(edge_index.device).long()
        graphs = None if self._graph is None else Graphs(self._graph, self._graph)
        self.block = Block(num_nodes, num_nodes, matrices, graphs)
        self._placed = {edge_index.device: self.block}

    def whole(self, num_layers: int, device: torch.device | str = "cpu") -> ReceptiveField:
        """Every node, with the same block for each layer, which is kept on its device."""
        place = torch.device(device)
        if place not in self._placed:
            self._placed[place] = self.block.to(place)
        nodes = torch.arange(self.num_nodes, device=place)
        return ReceptiveField(nodes, (self._placed[place],) * num_layers)

    def receptive_field(self, nodes: Tensor, num_layers: int) -> ReceptiveField:
        """Exactly the part of the graph that reaches `nodes` $[n]$ in `num_layers` hops.

        For models that read whole graphs it is the whole graph of each node. A node may be named
        more than once: it is predicted as often, and read once.
        """
        blocks: list[Block] = []
        few = self._graph is None and nodes.numel() * MANY < self.num_nodes
        for _ in range(num_layers):
            rows = self.block.select_rows(nodes)
            seen = [matrix.pattern.col for matrix in rows.matrices.values()]
            sources, place = _number_few(nodes, seen) if few else self._number(nodes, seen)
            matrices = {
                op: SparseMatrix(
                    Pattern(matrix.pattern.rowptr, place(matrix.pattern.col), sources.numel()),
                    matrix.value,
                )
                for op, matrix in rows.matrices.items()
            }
            graphs = None
            if self._graph is not None:
                first = place(sources) == torch.arange(sources.numel(), device=nodes.device)
                read = torch.where(first, self._graph[sources], -1)
                graphs = Graphs(self._graph[nodes], read)
            blocks.append(Block(sources.numel(), nodes.numel(), matrices, graphs))
            nodes = sources
        return ReceptiveField(nodes, tuple(reversed(blocks)))

    def _number(self, nodes: Tensor, read: Sequence[Tensor]) -> tuple[Tensor, Place]:
        """Nodes $[n]$ and after them, ascending, the others that are read; and their places."""
        position = nodes.new_full((self.num_nodes,), -1)
        position[nodes] = torch.arange(nodes.numel(), device=nodes.device)
        reached = self._in_graphs_of(nodes)
        for some in read:
            reached[some] = True
        (new,) = (reached & (position < 0)).nonzero(as_tuple=True)
        sources = torch.cat([nodes, new])
        position[new] = torch.arange(nodes.numel(), sources.numel(), device=nodes.device)
        return sources, lambda some: position[some]

    def _in_graphs_of(self, nodes: Tensor) -> Tensor:
        """Mask $[N]$ of the nodes of the graphs that some nodes are in, if a model reads these."""
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
) -> Graph:
    """Return the :class:`Graph` of a tensor of edges, which is built once and kept as long as the
    tensor. It is built again if a tensor was changed in place. Arguments as for :class:`Graph`.
    """
    key = id(edge_index), num_nodes, tuple(operators), id(graph)
    given = [t for t in (edge_index, graph) if t is not None]
    version = tuple(0 if t.is_inference() else t._version for t in given)
    before, built = _graphs.get(key, (None, None))
    if built is None or before != version:
        if built is None:
            for tensor in given:
                finalize(tensor, _graphs.pop, key, None).atexit = False
        if edge_index.numel() and not 0 <= edge_index.min() <= edge_index.max() < num_nodes:
            wrong = edge_index[(edge_index < 0) | (edge_index >= num_nodes)][0]
            raise InputError(f"edge_index contains node {wrong}, but x has {num_nodes} rows")
        built = Graph(edge_index, num_nodes, operators, graph)
        _graphs[key] = version, built
    return built


def _number_few(nodes: Tensor, read: Sequence[Tensor]) -> tuple[Tensor, Place]:
    """As `Graph._number`, at a cost that does not grow with the graph."""
    every = torch.cat([nodes, *read]).unique()
    sources = torch.cat([nodes, every[~torch.isin(every, nodes)]])
    order = sources.argsort(stable=True)
    ascending = sources[order]
    return sources, lambda some: order[torch.searchsorted(ascending, some.long())]


def operator_matrix(edge_index: Tensor, num_nodes: int, operator: Operator) -> SparseMatrix:
    """The matrix $[N, N]$ of an operator for edges $[2, E]$; row = the node that reads."""
    src, dst = edge_index if operator.direction == "along" else edge_index.flip(0)
    if operator.kind in ("renormalised", "attention"):
        loops = torch.arange(num_nodes, device=src.device)
        proper = src != dst
        src, dst = torch.cat([src[proper], loops]), torch.cat([dst[proper], loops])
    value = torch.ones(src.numel(), device=src.device)
    if operator.kind in ("symmetric", "renormalised"):
        degree = torch.bincount(dst, minlength=num_nodes).to(value.dtype)
        scale = degree.rsqrt().nan_to_num(posinf=0.0)
        value = scale[src] * scale[dst]
    if operator.kind == "mean":
        value = torch.bincount(dst, minlength=num_nodes).to(value.dtype).reciprocal()[dst]
    return SparseMatrix.from_coo(dst, src, value, (num_nodes, num_nodes))

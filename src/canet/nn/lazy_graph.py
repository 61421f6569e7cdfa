"""A graph whose blocks are normalised when they are cut, from arrays that may be on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from canet.errors import InputError
from canet.nn.blocks import Block, Direction, Kind, Operator, ReceptiveField
from canet.nn.membership import Membership, components
from canet.nn.operations import fused
from canet.nn.sampling import Draw, draw_neighbours, most_nodes, relabel
from canet.nn.sparse_matrix import Pattern, SparseMatrix

if TYPE_CHECKING:
    from canet.nn.kernels.sampling import Hop

ENTRIES_AT_ONCE = 2**21
"""Entries of arrays on disk that are read at once."""


class Neighbours:
    """The neighbours of all nodes in one direction, without the nodes themselves.

    Only arrays over the nodes are computed; the others may be memory-mapped files.

    Args:
        rowptr: Where the neighbours of each node begin $[N + 1]$, 64-bit.
        col: Ids of the neighbours $[E]$, grouped by node.
        weight: Weights of the edges $[E]$; None: one.
        loops: Weights of the self-loops $[N]$; None: there are none.
        dtype: Type of the normalised values.
    """

    def __init__(
        self,
        rowptr: Tensor,
        col: Tensor,
        weight: Tensor | None = None,
        loops: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.rowptr, self.col, self.weight = rowptr, col, weight
        self.dtype = dtype or torch.get_default_dtype()
        self.loops = None if loops is None else loops.to(self.dtype)
        self._scales: dict[Kind, Tensor] = {}

    @classmethod
    def from_edges(
        cls, source: Tensor, target: Tensor, num_nodes: int, weight: Tensor | None, **options: Any
    ) -> Neighbours:
        """Group edges $[E]$ by their target."""
        is_loop, loops = source == target, None
        if is_loop.any():
            value = torch.ones(is_loop.shape, device=source.device) if weight is None else weight
            loops = value.new_zeros(num_nodes).index_add(0, target[is_loop], value[is_loop])
        source, target = source[~is_loop], target[~is_loop]
        order = torch.argsort(target * num_nodes + source, stable=True)
        count = torch.bincount(target, minlength=num_nodes)
        rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        if weight is not None:
            weight = weight[~is_loop][order]
        return cls(rowptr, source[order].int(), weight, loops, **options)

    @property
    def num_nodes(self) -> int:
        return self.rowptr.numel() - 1

    def values(self, kind: Kind, nodes: Tensor, drawn: Draw, col: Tensor) -> Tensor:
        """Return the entries $[m]$ of an operator's matrix for drawn neighbours of `nodes`.

        Sums are scaled to the number of all neighbours; attention is not.
        """
        of_node = torch.ones(nodes.shape, dtype=self.dtype, device=nodes.device)
        if drawn.factor is not None and kind != "attention":
            of_node = drawn.factor.to(self.dtype)
        if kind in ("mean", "symmetric", "renormalised"):
            of_node = self._scale(kind)[nodes] * of_node
        value = of_node[drawn.row.clamp(max=len(of_node) - 1)]
        if kind in ("symmetric", "renormalised"):
            value = value * self._scale(kind)[col]
        return value if self.weight is None else value * self.weight[drawn.entry].to(self.dtype)

    def diagonal(self, kind: Kind, nodes: Tensor) -> Tensor | None:
        """Return the entries $[n]$ of an operator's matrix on the diagonal; None if all are 0."""
        if kind == "attention":
            return torch.ones(nodes.shape, dtype=self.dtype, device=nodes.device)
        if kind == "renormalised":
            return self._scale(kind)[nodes].square()
        if self.loops is None:
            return None
        loops = self.loops[nodes]
        if kind == "sum":
            return loops
        scale = self._scale(kind)[nodes]
        return loops * (scale if kind == "mean" else scale.square())

    def _scale(self, kind: Kind) -> Tensor:
        """Return the factors $[N]$ of an operator: 1 / degree or 1 / √degree; 0 for degree 0."""
        if kind not in self._scales:
            degree = self._degree()
            if kind == "renormalised":
                degree = degree + 1
            elif self.loops is not None:
                degree = degree + self.loops
            inverse = degree.reciprocal() if kind == "mean" else degree.rsqrt()
            self._scales[kind] = inverse.nan_to_num_(posinf=0.0)
        return self._scales[kind]

    def _degree(self) -> Tensor:
        """Return the sum of the weights $[N]$ of each node's edges."""
        if self.weight is None:
            return self.rowptr.diff().to(self.dtype)
        degree = torch.zeros(self.num_nodes, dtype=torch.double, device=self.rowptr.device)
        for first in range(0, self.weight.numel(), ENTRIES_AT_ONCE):
            weight = self.weight[first : first + ENTRIES_AT_ONCE].double()
            entry = torch.arange(first, first + weight.numel(), device=degree.device)
            degree.index_add_(0, torch.searchsorted(self.rowptr, entry, right=True) - 1, weight)
        return degree.to(self.dtype)


class LazyGraph:
    """A graph whose blocks are normalised when they are cut.

    Its arrays may be memory-mapped files: only the entries of a receptive field are read. Degrees
    are those of the whole graph.

    Args:
        neighbours: The neighbours of all nodes, for each direction of the operators.
        operators: The operators of the model. For `graph`, the blocks still need sums over graphs.
        graph: Graph number $[N]$ of each node, starting at 0, for models that attend over whole
            graphs. By default each connected component is a graph.
    """

    def __init__(
        self,
        neighbours: Mapping[Direction, Neighbours],
        operators: Sequence[Operator],
        graph: Tensor | None = None,
    ) -> None:
        first = next(iter(neighbours.values()))
        self.num_nodes = first.num_nodes
        self._is_weighted = any(one.weight is not None for one in neighbours.values())
        self._operators = tuple(op for op in operators if op.kind != "graph")
        self.attends_over_graphs = len(self._operators) < len(operators)
        for operator in self._operators:
            if operator.direction not in neighbours:
                raise InputError(
                    "a graph store has only the incoming edges of each node: leave out "
                    "direction=against, or convert the reversed edges"
                )
        self._neighbours = dict(neighbours)
        self._graph = graph
        self._position: Tensor | None = None

    @classmethod
    def from_edges(
        cls,
        edge_index: Tensor,
        num_nodes: int,
        operators: Sequence[Operator],
        edge_weight: Tensor | None = None,
        dtype: torch.dtype | None = None,
        graph: Tensor | None = None,
    ) -> LazyGraph:
        """Build from edges in memory; arguments as for `Graph`."""
        source, target = edge_index
        ends = {"along": (source, target), "against": (target, source)}
        matrices = [operator for operator in operators if operator.kind != "graph"]
        directions: list[Direction] = [op.direction for op in matrices] or ["along"]
        found = {
            direction: Neighbours.from_edges(*ends[direction], num_nodes, edge_weight, dtype=dtype)
            for direction in dict.fromkeys(directions)
        }
        return cls(found, operators, graph)

    @cached_property
    def membership(self) -> Membership:
        """The graph of each node."""
        if self._graph is None:
            pieces = partial(self.pieces, None, ENTRIES_AT_ONCE)
            self._graph = components(self.num_nodes, pieces, self._edges)
        return Membership.of(self._graph)

    def _edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return both ends of the edges of some nodes in one direction."""
        one = next(iter(self._neighbours.values()))
        drawn = draw_neighbours(one.rowptr, nodes, -1)
        return nodes[drawn.row], one.col[drawn.entry].long()

    def neighbours(self, nodes: Tensor) -> Tensor:
        """Return the ids of all neighbours of `nodes`; an id may occur several times."""
        found = [
            one.col[draw_neighbours(one.rowptr, nodes, -1).entry].long()
            for one in self._neighbours.values()
        ]
        return torch.cat(found)

    @property
    def device(self) -> torch.device:
        return next(iter(self._neighbours.values())).rowptr.device

    def num_readers(self) -> Tensor:
        """Return the number $[N]$ of nodes that read each node, in one pass over the edges."""
        count = torch.zeros(self.num_nodes, dtype=torch.int32, device=self.device)
        for one in self._neighbours.values():
            for read in one.col.split(ENTRIES_AT_ONCE):
                count.index_add_(0, read.long(), count.new_ones(read.numel()))
        return count

    def pieces(self, nodes: Tensor | None, num_edges: int) -> Iterator[Tensor]:
        """Cut `nodes`, or all nodes, into pieces that have about `num_edges` edges.

        A node counts like an edge.
        """
        ids = torch.arange(self.num_nodes, device=self.device) if nodes is None else nodes
        total = torch.ones_like(ids)
        for one in self._neighbours.values():
            rowptr = one.rowptr
            total += rowptr.diff() if nodes is None else rowptr[nodes + 1] - rowptr[nodes]
        total = total.cumsum_(0)
        first = 0
        while first < ids.numel():
            limit = num_edges + (int(total[first - 1]) if first else 0)
            last = max(first + 1, int(torch.searchsorted(total, limit, right=True)))
            yield ids[first:last]
            first = last

    def receptive_field(self, nodes: Tensor, num_layers: int) -> ReceptiveField:
        """Return exactly the part of the graph that reaches `nodes` $[n]$ in `num_layers` hops."""
        return self.sampled_field(nodes, (-1,) * num_layers)

    def sampled_field(self, nodes: Tensor, fanout: Sequence[int], seed: int = 0) -> ReceptiveField:
        """Draw a receptive field of `nodes` $[n]$ with some random neighbours of each node.

        Sums are scaled by degree ÷ number of drawn neighbours, so that their expectation is that
        of all neighbours. Attention runs over the drawn neighbours and the node itself.

        Args:
            nodes: The nodes to predict, each of them once.
            fanout: Number of neighbours to draw for each layer, from the last layer to the first;
                -1: all neighbours.
            seed: Determines the drawn neighbours; hops use successive seeds.
        """
        if self.has_kernel(fanout):
            return self._exact_size(nodes, fanout, seed)
        position = self._positions(nodes.device)
        blocks: list[Block] = []
        for hop, count in enumerate(fanout):
            draws, read = [], []
            for one in self._neighbours.values():
                drawn = draw_neighbours(one.rowptr, nodes, count, seed + hop)
                draws.append(drawn)
                read.append(one.col[drawn.entry].long())
            sources, columns = relabel(nodes, read, position)
            blocks.append(self._block(nodes, draws, read, columns, sources.numel()))
            nodes = sources
        return ReceptiveField(nodes, tuple(reversed(blocks)))

    def padded_field(
        self, nodes: Tensor, fanout: Sequence[int], seed: Tensor, capacity: Sequence[int]
    ) -> tuple[ReceptiveField, Tensor]:
        """Draw a receptive field whose shapes are known before, for a CUDA graph.

        Args:
            nodes: The nodes to predict, on a GPU, each of them once.
            fanout: As for `sampled_field`; 1 or more.
            seed: Determines the drawn neighbours; one integer on the GPU.
            capacity: Number of nodes after each hop. If more are drawn, a node that drew one of
                these reads itself instead. Unused places contain the node with id 0.

        Returns:
            The field, and the numbers of nodes that were drawn, $[h + 1, 2]$.
        """
        from canet.nn.kernels.sampling import draw_hops

        (one,) = self._neighbours.values()
        position = self._positions(nodes.device)
        found = draw_hops(one.rowptr, one.col, nodes, fanout, seed, position, capacity)
        return self._field(*found[:2]), found[2]

    def _exact_size(self, nodes: Tensor, fanout: Sequence[int], seed: int) -> ReceptiveField:
        """Draw a receptive field by a kernel, and remove unused places."""
        from canet.nn.kernels.sampling import draw_hops

        (one,) = self._neighbours.values()
        capacity = most_nodes(nodes.numel(), fanout, self.num_nodes)
        seeds = torch.full((1,), seed, device=nodes.device)
        position = self._positions(nodes.device)
        nodes, hops, sizes = draw_hops(
            one.rowptr, one.col, nodes, fanout, seeds, position, capacity
        )
        counts = sizes.tolist()
        found = [hop.cut(*size) for hop, size in zip(hops, pairwise(counts), strict=True)]
        return self._field(nodes[: counts[-1][0]], found)

    def _field(self, nodes: Tensor, hops: Sequence[Hop]) -> ReceptiveField:
        """Return the field of neighbours that a kernel drew."""
        (one,) = self._neighbours.values()
        blocks: list[Block] = []
        for hop in hops:
            dst = nodes[: hop.rowptr.numel() - 1]
            count, degree = hop.rowptr.diff(), one.rowptr[dst + 1] - one.rowptr[dst]
            factor = degree / count.clamp(min=1)
            drawn = Draw(hop.rowptr, hop.row, hop.entry, factor, hop.fanout)
            blocks.append(self._block(dst, [drawn], [hop.node], [hop.col], hop.num_src))
        return ReceptiveField(nodes, tuple(reversed(blocks)))

    def has_kernel(self, fanout: Sequence[int]) -> bool:
        """Whether the graph is on a GPU with a kernel for these numbers of neighbours."""
        one, *others = self._neighbours.values()
        is_small = self.num_nodes < 2**31 and not others
        return fused.on_gpu(one.rowptr) and is_small and min(fanout) > 0

    def can_be_padded(self, fanout: Sequence[int]) -> bool:
        """Whether `padded_field` can be used: not for attention that reads unused places."""
        is_attention = any(operator.kind == "attention" for operator in self._operators)
        is_plain = not (self.attends_over_graphs or (self._is_weighted and is_attention))
        return self.has_kernel(fanout) and is_plain

    def _positions(self, device: torch.device) -> Tensor:
        """Return an array over all nodes that contains -1."""
        if self._position is None:
            kind = torch.int32 if self.num_nodes < 2**31 else torch.int64
            self._position = torch.full((self.num_nodes,), -1, dtype=kind, device=device)
        return self._position

    def _block(
        self,
        nodes: Tensor,
        draws: Sequence[Draw],
        read: Sequence[Tensor],
        columns: Sequence[Tensor],
        num_src: int,
    ) -> Block:
        """Return the block of drawn neighbours with ids `read` at the positions `columns`."""
        parts = dict(zip(self._neighbours, zip(draws, read, columns, strict=True), strict=True))
        patterns: dict[tuple[Direction, bool], Pattern] = {}
        matrices: dict[Operator, SparseMatrix] = {}
        for operator in self._operators:
            neighbours = self._neighbours[operator.direction]
            drawn, ids, column = parts[operator.direction]
            value = neighbours.values(operator.kind, nodes, drawn, ids)
            loops = neighbours.diagonal(operator.kind, nodes)
            if loops is not None:
                value = _with_last(drawn, value, loops)
            key = operator.direction, loops is not None
            if key not in patterns:
                patterns[key] = _pattern(drawn, column, num_src, has_loops=loops is not None)
            matrices[operator] = SparseMatrix(patterns[key], value)
        return Block(num_src, nodes.numel(), matrices, is_weighted=self._is_weighted)


def _pattern(drawn: Draw, column: Tensor, num_src: int, has_loops: bool) -> Pattern:
    """Return the pattern of drawn neighbours at the positions `column` $[m]$."""
    rowptr, number = drawn.rowptr, torch.arange(drawn.rowptr.numel(), device=column.device)
    row = drawn.row.clamp(max=max(0, number.numel() - 2))
    if has_loops:
        own = number[:-1]
        column, row = (_with_last(drawn, one, own.to(one.dtype)) for one in (column, row))
        rowptr = rowptr + number
    longest = None if drawn.longest is None else drawn.longest + has_loops
    return Pattern(rowptr, column, num_src, row, longest)


def _with_last(drawn: Draw, entries: Tensor, last: Tensor) -> Tensor:
    """Add an entry at the end of each row: entries $[m]$ and `last` $[n]$ → $[m + n]$."""
    joined = entries.new_empty(entries.numel() + last.numel())
    number = torch.arange(joined.numel(), device=entries.device)
    joined[number[: entries.numel()] + drawn.row] = entries
    joined[drawn.rowptr[1:] + number[: last.numel()]] = last
    return joined

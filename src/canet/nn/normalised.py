"""A graph over its neighbours: the whole graph, exact and sampled receptive fields, pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from threading import local
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from canet.errors import InputError
from canet.nn.blocks import Block, Direction, Operator, ReceptiveField
from canet.nn.membership import Graphs, GraphSums
from canet.nn.neighbours import ENTRIES_AT_ONCE, Neighbours, Places
from canet.nn.operations import fused
from canet.nn.sampling import Draw, draw_neighbours, most_nodes, relabel
from canet.nn.sparse_matrix import Pattern, SparseMatrix
from canet.util.sparse import Csr

if TYPE_CHECKING:
    from canet.nn.kernels.sampling import Hop

ADDS_LOOPS = ("renormalised", "attention")  # kinds of operators with a self-loop at every node


class NormalisedGraph:
    """A graph, from which blocks are cut for models with given operators.

    `whole` and `receptive_field` use matrices of the whole graph, which are normalised once.
    `sampled_field` and `padded_field` normalise only what they cut, with the degrees of the whole
    graph, so that a graph may be on disk.

    Args:
        edges: Edges $[2, E]$ (source, target), or the edges into each node, which may be memory
            maps. A repeated edge counts once per repetition.
        num_nodes: $N$.
        operators: The operators of the model.
        graph: Graph number $[N]$ of each node, starting at 0, for models that attend over whole
            graphs. By default each connected component is a graph.
        edge_weight: Weights ≥ 0 of the edges $[2, E]$; None: one. An edge of weight w counts like
            w edges.
        dtype: Type of the matrices; None: the default of torch.
    """

    def __init__(
        self,
        edges: Tensor | Csr,
        num_nodes: int,
        operators: Sequence[Operator],
        graph: Tensor | None = None,
        edge_weight: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.num_nodes = num_nodes
        self._operators = tuple(op for op in operators if op.kind != "graph")
        self.attends_over_graphs = len(self._operators) < len(operators)
        self._graph = graph
        directions = [op.direction for op in self._operators] or ["along"]
        self._neighbours: dict[Direction, Neighbours] = {}
        if isinstance(edges, Csr):
            if "against" in directions:
                raise InputError(
                    "a graph store has only the incoming edges of each node: leave out "
                    "direction=against, or convert the reversed edges"
                )
            self._neighbours["along"] = Neighbours(edges, dtype)
        else:
            if edge_weight is not None:
                edge_weight = edge_weight.detach() if (edge_weight != 1).any() else None
            for direction in dict.fromkeys(directions):
                ends = edges if direction == "along" else edges.flip(0)
                self._neighbours[direction] = Neighbours.from_edges(
                    ends, num_nodes, edge_weight, dtype
                )
        self._on: dict[torch.device, NormalisedGraph] = {}
        self._block_on: dict[torch.device, Block] = {}
        self._scratch = local()

    def to(self, device: torch.device) -> NormalisedGraph:
        """Return the graph on a device; it is copied to each device only once."""
        if device == self.device:
            return self
        if device not in self._on:
            moved = {way: one.to(device) for way, one in self._neighbours.items()}
            self._on[device] = self._with(moved)
        return self._on[device]

    def _with(self, neighbours: dict[Direction, Neighbours]) -> NormalisedGraph:
        """Return the graph with other copies of its arrays."""
        other = copy(self)
        other._neighbours = neighbours
        other._on, other._block_on, other._scratch = {}, {}, local()
        for name in ("block", "membership"):
            other.__dict__.pop(name, None)
        return other

    def drawing_on(self, device: torch.device, pin: Callable[[Tensor], Tensor]) -> NormalisedGraph:
        """Return the graph for drawing neighbours on a GPU that reads their ids from pinned memory.

        It is this graph if the edges have weights or two directions, or if `pin` pins nothing.
        """
        (way, one), *others = self._neighbours.items()
        if others or one.weight is not None or not (col := pin(one.col)).is_pinned():
            return self
        loops = None if one.loops is None else one.loops.to(device)
        csr = Csr(one.rowptr.to(device), col, None, loops)
        return self._with({way: Neighbours(csr, one.dtype)})

    @property
    def device(self) -> torch.device:
        return next(iter(self._neighbours.values())).rowptr.device

    @property
    def is_weighted(self) -> bool:
        return any(one.weight is not None for one in self._neighbours.values())

    @cached_property
    def block(self) -> Block:
        """All nodes, with the normalised matrices $[N, N]$; rows are destinations."""
        nodes = torch.arange(self.num_nodes, device=self.device)
        draws = [draw_neighbours(one.rowptr, nodes, -1) for one in self._neighbours.values()]
        columns = [one.col for one in self._neighbours.values()]
        block = self._block(nodes, draws, columns, columns, self.num_nodes, in_order=True)
        if not self.attends_over_graphs:
            return block
        number = self._numbers()
        return replace(block, graphs=Graphs(number, number))

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
        for _ in range(num_layers):
            rows = self.block.select_rows(nodes)
            read = [matrix.pattern.col for matrix in rows.matrices.values()]
            in_graphs = [self._in_graphs_of(nodes)] if self.attends_over_graphs else []
            sources, (at, *columns) = relabel(
                nodes, [nodes, *read, *in_graphs], self._positions(), ascending=True
            )
            matrices = {
                op: SparseMatrix(Pattern(m.pattern.rowptr, column, sources.numel()), m.value)
                for (op, m), column in zip(rows.matrices.items(), columns, strict=False)
            }
            graphs = None
            if rows.graphs is not None:
                number = self._numbers()
                of_sources = number[sources]
                is_first = at == torch.arange(nodes.numel(), device=nodes.device)
                of_sources[: nodes.numel()][~is_first] = -1
                graphs = Graphs(number[nodes], of_sources)
            sizes = sources.numel(), nodes.numel()
            blocks.append(Block(*sizes, matrices, graphs, self.is_weighted))
            nodes = sources
        return ReceptiveField(nodes, tuple(reversed(blocks)))

    def _in_graphs_of(self, nodes: Tensor) -> Tensor:
        """Return the nodes in the same graphs as `nodes`, ascending."""
        number = self._numbers()
        chosen = torch.zeros(int(number.max()) + 1, dtype=torch.bool, device=nodes.device)
        chosen[number[nodes]] = True
        return chosen[number].nonzero().squeeze(1)

    @cached_property
    def membership(self) -> tuple[Tensor, Tensor]:
        """Number $[N]$ of each node's graph, -1 if the node is alone in it, and sizes $[G]$."""
        graph = self._numbers()
        count = torch.bincount(graph)
        is_kept = count > 1
        number = torch.where(is_kept, is_kept.cumsum(0) - 1, -1)
        return number[graph], count[is_kept]

    def _numbers(self) -> Tensor:
        """Return the graph number $[N]$ of each node."""
        if self._graph is None:
            self._graph = self._components()
        self._graph = self._graph.to(self.device).long()
        return self._graph

    def _components(self) -> Tensor:
        """Return the number $[N]$ of each node's connected component, with arrays over nodes only.

        Edges of weight 0 join nothing.
        A label is the number of a node. Each pass over the edges gives both ends of an edge, and
        the nodes of their labels, the smaller label of both. Then each label is replaced by the
        label of its node, until nothing changes.
        """
        one = next(iter(self._neighbours.values()))
        label = torch.arange(self.num_nodes, device=self.device)
        while True:
            before = label.clone()
            for nodes in self.pieces(None, ENTRIES_AT_ONCE):
                drawn = draw_neighbours(one.rowptr, nodes, -1)
                row, entry = nodes[drawn.row], drawn.entry
                if one.weight is not None:
                    joins = one.weight[entry] > 0
                    row, entry = row[joins], entry[joins]
                ends = torch.cat([row, one.col[entry].long()])
                low = torch.minimum(*label[ends].chunk(2)).repeat(2)
                label.scatter_reduce_(0, torch.cat([ends, label[ends]]), low.repeat(2), "amin")
            while not torch.equal(label, following := label[label]):
                label = following
            if torch.equal(before, label):
                return label.unique(return_inverse=True)[1]

    def with_sums(self, field: ReceptiveField, sums: Iterable[Tensor]) -> ReceptiveField:
        """Add the sums over graphs, one for each layer, to the blocks of a receptive field."""
        device, (number, size) = field.nodes.device, self.membership
        number, size = number[field.nodes.to(self.device)].to(device), size.to(device)
        blocks = (
            replace(block, graphs=GraphSums(number[: block.num_dst], size, one))
            for block, one in zip(field.blocks, sums, strict=True)
        )
        return replace(field, blocks=tuple(blocks))

    def neighbours(self, nodes: Tensor) -> Tensor:
        """Return the ids of all neighbours of `nodes`; an id may occur several times."""
        found = [
            one.col[draw_neighbours(one.rowptr, nodes, -1).entry].long()
            for one in self._neighbours.values()
        ]
        return torch.cat(found)

    def degree(self, nodes: Tensor) -> Tensor:
        """Return the number $[n]$ of neighbours of nodes, in one direction, with self-loops."""
        one = next(iter(self._neighbours.values()))
        return Csr(one.rowptr, one.col, one.weight, one.loops).degree(nodes)

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
        position = self._positions()
        blocks: list[Block] = []
        for hop, count in enumerate(fanout):
            near = self._neighbours.values()
            draws = [draw_neighbours(one.rowptr, nodes, count, seed + hop) for one in near]
            read = [one.col[draw.entry].long() for one, draw in zip(near, draws, strict=True)]
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
            capacity: Number of nodes after each hop. If a neighbour does not fit, the node that
                drew it reads itself instead. Unused places contain the node with id 0.

        Returns:
            The field, and the numbers of nodes that were drawn, $[h + 1, 2]$.
        """
        from canet.nn.kernels.sampling import draw_hops

        (one,) = self._neighbours.values()
        position = self._positions()
        found = draw_hops(one.rowptr, one.col, nodes, fanout, seed, position, capacity)
        return self._field(*found[:2]), found[2]

    def _exact_size(self, nodes: Tensor, fanout: Sequence[int], seed: int) -> ReceptiveField:
        """Draw a receptive field by a kernel, and remove unused places."""
        from canet.nn.kernels.sampling import draw_hops

        (one,) = self._neighbours.values()
        capacity = most_nodes(nodes.numel(), fanout, self.num_nodes)
        seeds = torch.full((1,), seed, device=nodes.device)
        position = self._positions()
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
        is_plain = not (self.attends_over_graphs or (self.is_weighted and is_attention))
        return self.has_kernel(fanout) and is_plain

    def _positions(self) -> Tensor:
        """Return an array over all nodes that contains -1; each thread has its own."""
        found: Tensor | None = getattr(self._scratch, "position", None)
        if found is None:
            kind = torch.int32 if self.num_nodes < 2**31 else torch.int64
            found = torch.full((self.num_nodes,), -1, dtype=kind, device=self.device)
            self._scratch.position = found
        return found

    def _block(
        self,
        nodes: Tensor,
        draws: Sequence[Draw],
        read: Sequence[Tensor],
        columns: Sequence[Tensor],
        num_src: int,
        in_order: bool = False,
    ) -> Block:
        """Return the block of drawn neighbours with ids `read` at the positions `columns`.

        Entries on the diagonal are last in each row or, with `in_order`, in the order of columns;
        that is for all nodes.
        """
        parts = dict(zip(self._neighbours, zip(draws, read, columns, strict=True), strict=True))
        patterns: dict[tuple[Direction, bool, bool], tuple[Pattern, Places | None]] = {}
        matrices: dict[Operator, SparseMatrix] = {}
        for operator in self._operators:
            kind, direction = operator.kind, operator.direction
            drawn, ids, column = parts[direction]
            value = self._neighbours[direction].values(kind, nodes, drawn, ids)
            own = self._neighbours[direction].diagonal(kind, nodes)
            key = direction, own is not None, kind in ADDS_LOOPS
            if key not in patterns:
                places = None
                if own is not None and in_order:
                    places = Places.in_order(drawn, column, own.nonzero().squeeze(1))
                elif own is not None:
                    places = Places.last(drawn)
                pattern = _pattern(drawn, column, num_src, places, has_rows=not in_order)
                patterns[key] = pattern, places
            pattern, places = patterns[key]
            if own is not None and places is not None:
                value = places.join(value, own[places.row])
            matrices[operator] = SparseMatrix(pattern, value)
        return Block(num_src, nodes.numel(), matrices, is_weighted=self.is_weighted)


def _pattern(
    drawn: Draw, column: Tensor, num_src: int, places: Places | None, has_rows: bool
) -> Pattern:
    """Return the pattern of drawn neighbours at the positions `column` $[m]$."""
    rowptr, longest = drawn.rowptr, drawn.longest
    row = drawn.row.clamp(max=max(0, rowptr.numel() - 2)) if has_rows else None
    if places is not None:
        rowptr, column = places.rowptr, places.join(column, places.row)
        row = None if row is None else places.join(row, places.row)
        longest = None if longest is None else longest + 1
    return Pattern(rowptr, column, num_src, row, longest)


_graphs: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Edges → other arguments of `cached_graph` → copies of its tensors, and the graph."""


def cached_graph(
    edge_index: Tensor,
    num_nodes: int,
    operators: Sequence[Operator],
    graph: Tensor | None = None,
    edge_weight: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> NormalisedGraph:
    """Return the graph of a tensor of edges, which is kept while that tensor exists.

    The graph is built again if the numbers in a tensor have changed. Arguments as for
    :class:`NormalisedGraph`.
    """
    if edge_weight is not None and edge_weight.requires_grad:
        raise InputError(
            "edge_weight requires a gradient, but the graph is normalised only once: pass "
            "edge_weight.detach()"
        )
    key = num_nodes, tuple(operators), graph is None, edge_weight is None, dtype
    tensors = [t for t in (edge_index, graph, edge_weight) if t is not None]
    known = _graphs.setdefault(edge_index, {})
    before, built = known.get(key, ([], None))
    if built is None or not _are_equal(before, tensors):
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
        built = NormalisedGraph(edge_index, num_nodes, operators, graph, edge_weight, dtype)
        known[key] = [tensor.clone() for tensor in tensors], built
    return built


def _are_equal(before: Sequence[Tensor], now: Sequence[Tensor]) -> bool:
    return all(a.device == b.device and torch.equal(a, b) for a, b in zip(before, now, strict=True))

"""Sampled receptive fields: some random neighbours of each node, for training in batches."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from canet.errors import InputError
from canet.nn.blocks import Block, Direction, Graph, Operator, ReceptiveField
from canet.nn.sparse_matrix import Pattern, SparseMatrix

ALL = "all"
"""The fanout that reads all neighbours."""


def draw_neighbours(
    rowptr: Tensor, nodes: Tensor, fanout: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw at most `fanout` neighbours of each of `nodes` $[n]$; all of them if it is -1.

    A node with more neighbours draws with replacement, so that the cost does not depend on its
    degree.

    Args:
        rowptr: Where the entries of each node begin $[N + 1]$.
        nodes: The nodes.
        fanout: Number of neighbours.
        generator: Generator of the random numbers, on the device of the graph.

    Returns:
        For each drawn neighbour $[m]$: the position of its node in `nodes`, the index of its entry,
        and the factor by which a sum over the drawn neighbours must be multiplied to estimate the
        sum over all.
    """
    begin = rowptr[nodes]
    degree = rowptr[nodes + 1] - begin
    count = degree if fanout < 0 else degree.clamp(max=fanout)
    row = torch.arange(nodes.numel(), device=nodes.device).repeat_interleave(count)
    first = count.cumsum(0) - count
    offset = torch.arange(row.numel(), device=nodes.device) - first[row]
    of_row = degree[row]
    is_drawn = of_row > count[row]
    random = torch.rand(row.shape, generator=generator, device=nodes.device, dtype=torch.double)
    offset = torch.where(is_drawn, (random * of_row).long(), offset)
    return row, begin[row] + offset, of_row / count[row]


class Neighbours:
    """The neighbours of all nodes in one direction, without the nodes themselves.

    Entries of all operators are in the same order, so that all of them use the same sample.

    Args:
        matrices: Operator → its matrix $[N, N]$, all with this direction.
    """

    def __init__(self, matrices: dict[Operator, SparseMatrix]) -> None:
        self.values: dict[Operator, Tensor] = {}
        self.loops: dict[Operator, Tensor] = {}  # values on the diagonal $[N]$; 0 if there is none
        for operator, matrix in matrices.items():
            row, col = matrix.pattern.row, matrix.pattern.col
            is_loop = row == col
            self.values[operator] = matrix.value[~is_loop]
            loops = matrix.value.new_zeros(matrix.shape[0])
            self.loops[operator] = loops.index_add(0, row[is_loop].long(), matrix.value[is_loop])
            count = torch.bincount(row[~is_loop], minlength=matrix.shape[0])
            self.col = col[~is_loop]
            self.rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])


class Sampler:
    """Draws receptive fields of a graph, with the operators of a model.

    Args:
        graph: The normalised graph. Normalisation uses the degrees of the whole graph.
        device: Device that draws and holds the blocks.
    """

    def __init__(self, graph: Graph, device: torch.device | str = "cpu") -> None:
        block = graph.whole(1, device).blocks[0]
        if block.graphs is not None:
            raise InputError(
                "this backbone attends over whole graphs and cannot use sampled neighbours: leave "
                "out fanout, or choose another backbone"
            )
        self._is_weighted = block.is_weighted
        self._position = torch.full((graph.num_nodes,), -1, device=device)
        by_direction: dict[Direction, dict[Operator, SparseMatrix]] = {}
        for operator, matrix in block.matrices.items():
            by_direction.setdefault(operator.direction, {})[operator] = matrix
        self._neighbours = [Neighbours(matrices) for matrices in by_direction.values()]

    def field(
        self, nodes: Tensor, fanout: Sequence[int], generator: torch.Generator | None = None
    ) -> ReceptiveField:
        """Draw the receptive field of `nodes` $[n]$.

        Sums are scaled by degree ÷ number of drawn neighbours, so that their expectation is that
        of all neighbours. Attention runs over the drawn neighbours and the node itself.

        Args:
            nodes: The nodes to predict, each of them once.
            fanout: Number of neighbours to draw for each layer, from the last layer to the first;
                -1: all neighbours.
            generator: Generator of the random numbers, on the device of the graph.
        """
        blocks: list[Block] = []
        for count in fanout:
            drawn = [
                (one, *draw_neighbours(one.rowptr, nodes, count, generator))
                for one in self._neighbours
            ]
            sources, columns = self._relabel(nodes, [one.col[entry] for one, _, entry, _ in drawn])
            shape = nodes.numel(), sources.numel()
            matrices: dict[Operator, SparseMatrix] = {}
            for (one, row, entry, scale), column in zip(drawn, columns, strict=True):
                for operator, value in one.values.items():
                    weight = value[entry]
                    if operator.kind != "attention":
                        weight = weight * scale.to(weight)
                    loops = one.loops[operator][nodes]
                    matrices[operator] = _matrix(row, column, weight, loops, shape)
            blocks.append(Block(shape[1], shape[0], matrices, is_weighted=self._is_weighted))
            nodes = sources
        return ReceptiveField(nodes, tuple(reversed(blocks)))

    def _relabel(self, nodes: Tensor, read: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return `nodes` $[n]$, followed by the other nodes in `read`, and positions in this list.

        The work does not depend on the size of the graph.
        """
        position = self._position
        position[nodes] = torch.arange(nodes.numel(), device=nodes.device)
        others = torch.cat([nodes[:0], *read]).long()
        others = others[position[others] < 0].unique()
        sources = torch.cat([nodes, others])
        position[others] = torch.arange(nodes.numel(), sources.numel(), device=nodes.device)
        columns = [position[col] for col in read]
        position[sources] = -1
        return sources, columns


def _matrix(
    row: Tensor, col: Tensor, value: Tensor, loops: Tensor, shape: tuple[int, int]
) -> SparseMatrix:
    """Return the matrix of entries that are grouped by row, with a diagonal `loops` $[n]$."""
    own = loops.nonzero().squeeze(1)
    if own.numel():
        row, col = torch.cat([row, own]), torch.cat([col, own])
        order = row.argsort(stable=True)
        row, col, value = row[order], col[order], torch.cat([value, loops[own]])[order]
    count = torch.bincount(row, minlength=shape[0])
    rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return SparseMatrix(Pattern(rowptr, col, shape[1]), value)


def parse_fanout(text: str, num_layers: int) -> tuple[int, ...]:
    """`"15,10"` → `(15, 10)`; `all`: all neighbours in every layer.

    Raises:
        InputError: The text is not a list of integers, one for each layer.
    """
    if text == ALL:
        return (-1,) * num_layers
    counts: tuple[int, ...] = ()
    if isinstance(text, str) and re.fullmatch(r"(-1|[1-9]\d{0,5})(,(-1|[1-9]\d{0,5}))*", text):
        counts = tuple(int(part) for part in text.split(","))
    if len(counts) != num_layers:
        raise InputError(
            f"fanout is {str(text)[:40]!r}: write all, or one number for each of the {num_layers} "
            f"layers, such as {','.join(['15', '10', '5'][:num_layers])}; -1 means all neighbours"
        )
    return counts

"""Blocks: the neighbourhoods that one layer reads, normalised once per graph.

A model sees a graph only as a stack of L blocks. The same forward pass serves the whole graph (the
same block L times), the receptive field of some nodes (exactly the nodes and edges that can reach
them in L hops) and a sample of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from canet.nn.membership import Graphs, GraphSums
from canet.nn.sparse_matrix import Pattern, SparseMatrix

Kind = Literal["symmetric", "renormalised", "mean", "sum", "attention", "graph"]
Direction = Literal["along", "against"]


@dataclass(frozen=True)
class Operator:
    r"""The matrix that a layer multiplies with, or the neighbourhood that it attends over.

    Args:
        kind: With $D$ the diagonal matrix of in-degrees,
            `symmetric`: $D^{-1/2} A D^{-1/2}$, zero for nodes of degree zero (CaNet-GCN);
            `renormalised`: the same for $A + I$ (Kipf and Welling's GCN);
            `mean`: $D^{-1} A$, zero for nodes of degree zero;
            `sum`: $A$;
            `attention`: the sparsity pattern of $A + I$, with exactly one self-loop per node;
            `graph`: all nodes of the same graph. This is not a matrix but :class:`Graphs`.
        direction: Messages go `along` the edges (from source to target) or `against` them.
    """

    kind: Kind
    direction: Direction = "along"


@dataclass(frozen=True)
class Block:
    """One layer's neighbourhood: matrices from source nodes to destination nodes.

    The destinations are the first `num_dst` of the `num_src` source nodes. `graphs` assigns nodes
    to graphs, for models that attend over whole graphs. `is_weighted` is whether edges have
    weights; the values of an attention matrix are these weights.
    """

    num_src: int
    num_dst: int
    matrices: Mapping[Operator, SparseMatrix]
    graphs: Graphs | GraphSums | None = None
    is_weighted: bool = False

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        moved = {op: matrix.to(device, dtype) for op, matrix in self.matrices.items()}
        graphs = None if self.graphs is None else self.graphs.to(device)
        return replace(self, matrices=moved, graphs=graphs)

    def select_rows(self, nodes: Tensor) -> Self:
        """Keep the given destinations $[k]$, in this order, and all sources."""
        assert not isinstance(self.graphs, GraphSums)
        matrices = {op: matrix.select_rows(nodes) for op, matrix in self.matrices.items()}
        graphs = None if self.graphs is None else self.graphs.select_destinations(nodes)
        return replace(self, num_dst=nodes.numel(), matrices=matrices, graphs=graphs)

    def with_copies(self, n: int, num_dst: int) -> "Block":
        """Put two copies of the first n nodes in front and keep the first `num_dst` destinations.

        A copy reads the neighbours of its node, and itself instead of its node. No other node reads
        it. In attention over whole graphs, a copy reads the original nodes.
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
        graphs = rows.graphs.with_copies(2 * n) if isinstance(rows.graphs, Graphs) else None
        sizes = self.num_src + 2 * n, num_dst + 2 * n
        return Block(*sizes, matrices, graphs, self.is_weighted)


@dataclass(frozen=True)
class ReceptiveField:
    """The part of a graph that a model reads to predict some nodes."""

    nodes: Tensor  # ids $[n]$ of the nodes whose features are read. The predicted nodes come first.
    blocks: tuple[Block, ...]  # one block per layer, in the order of the layers

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "ReceptiveField":
        distinct = {id(block): block for block in self.blocks}
        moved = {key: block.to(device, dtype) for key, block in distinct.items()}
        blocks = tuple(moved[id(block)] for block in self.blocks)
        return ReceptiveField(self.nodes.to(device), blocks)

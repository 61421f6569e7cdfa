"""Blocks: one layer's neighbourhood, cut and normalised once per graph.

A model sees a stack of L blocks and nothing else of the graph. The same forward pass serves the
whole graph (one block, L times) and the receptive field of some nodes (exactly the part that can
reach them in L hops); a sampled field would be a stack of thinner blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from canet.nn.sparse_matrix import Pattern, SparseMatrix

Kind = Literal["symmetric", "renormalised", "sum", "attention"]
Direction = Literal["along", "against"]


@dataclass(frozen=True)
class Operator:
    r"""Which matrix a layer multiplies with, or attends over.

    Args:
        kind: With $d$ the number of incoming edges,
            `symmetric`: $D^{-1/2} A D^{-1/2}$, zero where a degree is zero (CaNet-GCN);
            `renormalised`: the same of $A + I$ (Kipf and Welling's GCN);
            `sum`: $A$;
            `attention`: the pattern of $A + I$, each node once its own neighbour.
        direction: `along` an edge (its target reads its source) or `against` it.
    """

    kind: Kind
    direction: Direction = "along"


@dataclass(frozen=True)
class Block:
    """One layer's neighbourhood: matrices from source nodes to destination nodes.

    The destinations are the first `num_dst` of the `num_src` source nodes.
    """

    num_src: int
    num_dst: int
    matrices: Mapping[Operator, SparseMatrix]

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Block:
        moved = {op: matrix.to(device, dtype) for op, matrix in self.matrices.items()}
        return Block(self.num_src, self.num_dst, moved)


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
        operators: The matrices that a model needs.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, operators: Sequence[Operator]) -> None:
        self.num_nodes = num_nodes
        self.matrices = {op: operator_matrix(edge_index, num_nodes, op) for op in operators}

    def whole(self, num_layers: int) -> ReceptiveField:
        """Every node, with the same block for each layer."""
        block = Block(self.num_nodes, self.num_nodes, self.matrices)
        return ReceptiveField(torch.arange(self.num_nodes), (block,) * num_layers)

    def receptive_field(self, nodes: Tensor, num_layers: int) -> ReceptiveField:
        """Exactly the part of the graph that reaches `nodes` $[n]$ in `num_layers` hops."""
        blocks: list[Block] = []
        position = nodes.new_full((self.num_nodes,), -1)
        position[nodes] = torch.arange(nodes.numel(), device=nodes.device)
        for _ in range(num_layers):
            selected = {op: matrix.select_rows(nodes) for op, matrix in self.matrices.items()}
            reached = torch.zeros_like(position, dtype=torch.bool)
            for rows in selected.values():
                reached[rows.pattern.col] = True
            (new,) = (reached & (position < 0)).nonzero(as_tuple=True)
            sources = torch.cat([nodes, new])
            position[new] = torch.arange(nodes.numel(), sources.numel(), device=nodes.device)
            matrices = {
                op: SparseMatrix(
                    Pattern(rows.pattern.rowptr, position[rows.pattern.col], sources.numel()),
                    rows.value,
                )
                for op, rows in selected.items()
            }
            blocks.append(Block(sources.numel(), nodes.numel(), matrices))
            nodes = sources
        return ReceptiveField(nodes, tuple(reversed(blocks)))


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
    return SparseMatrix.from_coo(dst, src, value, (num_nodes, num_nodes))

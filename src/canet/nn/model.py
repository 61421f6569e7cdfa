"""The base of all models: (features, blocks) or (features, edges) → logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn.blocks import Block, Direction, Operator, cached_graph
from canet.nn.dropout import dropout
from canet.nn.environment import Environment
from canet.nn.operations import multiply
from canet.nn.sparse_matrix import SparseMatrix


@dataclass(frozen=True)
class ShiftedFeatures:
    r"""Features with an offset for each group of nodes, $x_v + o_{g(v)}$, which are never stored:
    a linear map of them is $x W + M (o W)$.

    Args:
        x: Features $[n, D]$: dense, sparse, or with offsets of their own.
        offset: Offset $[G, D]$ of each group.
        member: One-hot rows $M$ $[n, G]$, dense or sparse; a row of zeros is of a node without
            group.
    """

    x: Features
    offset: Tensor
    member: Tensor | SparseMatrix

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape)

    def to(self, device: torch.device | str) -> ShiftedFeatures:
        return ShiftedFeatures(self.x.to(device), self.offset.to(device), self.member.to(device))


Features = Tensor | SparseMatrix | ShiftedFeatures
Exchange = Callable[[Tensor], Tensor]
Norm = Literal["none", "layer"]


def rows_of(x: Features, nodes: Tensor) -> Features:
    """The features of some nodes $[n]$, in their order."""
    if isinstance(x, ShiftedFeatures):
        return ShiftedFeatures(rows_of(x.x, nodes), x.offset, _select(x.member, nodes))
    return _select(x, nodes)


def _select(rows: Tensor | SparseMatrix, nodes: Tensor) -> Tensor | SparseMatrix:
    return rows[nodes] if isinstance(rows, Tensor) else rows.select_rows(nodes)


class Prediction(NamedTuple):
    """A forward pass for n predicted nodes.

    `logits` $[n, C]$; `embedding` $[n, H]$, the representation that the last linear map reads;
    `environments`, one per layer for models that infer them, whose first n rows are the predicted
    nodes.
    """

    logits: Tensor
    embedding: Tensor
    environments: tuple[Environment, ...] = ()


class GraphModel(nn.Module):
    """Base of the models: a linear map $\\phi_{in}$ into H dimensions and one, $\\phi_{out}$, out.

    Subclasses name the operators that their blocks must hold and what happens between.

    Args:
        num_features: $D$.
        num_classes: $C$.
        hidden: $H$.
        num_layers: $L$.
        dropout: Probability of dropping an input or hidden unit when training.
        direction: Propagate `along` the edges or `against` them.
        norm: `layer` normalises each node's hidden state after every layer, by LayerNorm (Ba et
            al., 2016); `none` leaves it as it is.

    Shapes:
        - x $[N, D]$ (dense or sparse CSR), edge_index $[2, E]$, batch $[N]$ (optional: the graph of
          each node, for models that read whole graphs) → logits $[N, C]$. The graph is normalised
          once and reused while `edge_index` exists.
        - x $[n_{src}, D]$ (dense, a :class:`SparseMatrix`, or :class:`ShiftedFeatures`), L blocks
          → :class:`Prediction`
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: int = 64,
        num_layers: int = 2,
        dropout: float = 0.0,
        direction: Direction = "along",
        norm: Norm = "none",
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.num_layers = num_layers
        self.dropout = dropout
        self.direction = direction
        self.phi_in = nn.Linear(num_features, hidden)
        self.phi_out = nn.Linear(hidden, num_classes)
        self.norms = nn.ModuleList(
            nn.LayerNorm(hidden) for _ in range(self.num_norms if norm == "layer" else 0)
        )
        self.setup()

    def setup(self) -> None:
        """Make the parameters between the two maps."""

    @property
    def operators(self) -> tuple[Operator, ...]:
        """What the model reads of a graph; its blocks must hold it."""
        raise NotImplementedError

    @property
    def num_norms(self) -> int:
        """Layers with a hidden state after them, which `norm` may normalise."""
        return self.num_layers

    @overload
    def forward(self, x: Features, blocks: Sequence[Block], /) -> Prediction: ...

    @overload
    def forward(self, x: Features, edge_index: Tensor, batch: Tensor | None = None) -> Tensor: ...

    def forward(self, x: Features, edge_index: Any, batch: Tensor | None = None) -> Any:
        if not isinstance(edge_index, Tensor):
            return self.forward_blocks(x, edge_index)
        if isinstance(x, Tensor) and x.layout == torch.sparse_csr:
            x = SparseMatrix.from_torch(x)
        graph = cached_graph(edge_index, x.shape[0], self.operators, batch)
        device = self.phi_out.weight.device
        return self.forward_blocks(x, graph.whole(self.num_layers, device).blocks).logits

    def forward_blocks(self, x: Features, blocks: Sequence[Block]) -> Prediction:
        """Predict the destination nodes of the last block."""
        raise NotImplementedError

    def normalise(self, z: Tensor, layer: int) -> Tensor:
        """The hidden state z $[m, H]$ after a layer, which is normalised where `norm` says so."""
        return self.norms[layer](z) if len(self.norms) else z

    def drop(self, z: Tensor) -> Tensor:
        return dropout(z, self.dropout, self.training)

    def project(self, x: Features, bias: Tensor | None = None) -> Tensor:
        """$x W_{in} + b$ $[n_{src}, H]$ after dropout; offsets are not dropped."""
        return self.map_in(self._dropped(x), bias)

    def _dropped(self, x: Features) -> Features:
        if isinstance(x, ShiftedFeatures):
            return replace(x, x=self._dropped(x.x))
        if isinstance(x, Tensor):
            return self.drop(x)
        if self.training and self.dropout > 0:
            return SparseMatrix(x.pattern, self.drop(x.value))
        return x

    def map_in(self, x: Features, bias: Tensor | None = None) -> Tensor:
        """$x W_{in} + b$ $[n_{src}, H]$. A sparse x stays sparse."""
        if isinstance(x, ShiftedFeatures):
            offset = F.linear(x.offset, self.phi_in.weight)
            z = self.map_in(x.x, bias)
            if isinstance(x.member, Tensor):
                return torch.addmm(z, x.member, offset)
            return z + multiply(x.member, offset)
        if isinstance(x, Tensor):
            return F.linear(x, self.phi_in.weight, bias)
        product = multiply(x, self.phi_in.weight.t())
        return product if bias is None else product + bias


class PlainModel(GraphModel):
    """A backbone without environments, and two hooks for methods that do more than predict.

    A forward pass is `project`, then `propagate`.
    """

    has_residual_links: ClassVar[bool] = True

    def forward_blocks(self, x: Features, blocks: Sequence[Block]) -> Prediction:
        return self.propagate(self.project(x), blocks)

    def propagate(
        self, z: Tensor, blocks: Sequence[Block], mix: Exchange = lambda z: z
    ) -> Prediction:
        """All layers, from $x W_{in}$ $[n_{src}, H]$ on.

        `mix` may exchange states between nodes, $[m, H]$ → $[m, H]$: the input of every layer
        after dropout, beyond the first map, and the embedding go through it.
        """
        raise NotImplementedError

    def average(self, z: Tensor, block: Block) -> Tensor:
        """Each node's mean of z $[n_{src}, H]$ over what it reads and itself, $[n_{dst}, H]$,
        weighted as the layers weigh it before they learn anything.
        """
        raise NotImplementedError

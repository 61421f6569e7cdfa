"""Plain GCN and GAT on the same blocks, for every method but CaNet; and their registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.colour import Colour
from canet.nn.blocks import Block, Direction, Kind, Operator
from canet.nn.model import Features, GraphModel, Prediction
from canet.nn.propagation import attend


class GCN(GraphModel):
    r"""Graph convolutional network (Kipf and Welling, ICLR '17),

    .. math:: z^{(l+1)} = \sigma(\hat A z^{(l)} W^{(l)} + b^{(l)}), \quad
              \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2},

    with L layers in all: $z^{(1)} = x$, and no $\sigma$ after the last. $\phi_{in}$ is the first
    layer's map, $\phi_{out}$ the last one's, and the embedding is what it reads, $\hat A z^{(L)}$.
    A network of one layer has both maps and no $\sigma$ between.

    Args:
        num_features: $D$.
        num_classes: $C$.
        hidden: $H$.
        num_layers: $L$.
        dropout: Probability of dropping an input or hidden unit when training.
        direction: Propagate `along` the edges or `against` them.

    Shapes:
        - x $[n_{src}, D]$, L blocks → :class:`Prediction` with logits $[n, C]$
    """

    kind: Kind = "renormalised"

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: int = 64,
        num_layers: int = 2,
        dropout: float = 0.0,
        direction: Direction = "along",
    ) -> None:
        super().__init__(num_features, num_classes, hidden, num_layers, dropout)
        self.operator = Operator(self.kind, direction)
        self.between = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(num_layers - 2))
        for linear in self._maps():
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    @property
    def operators(self) -> tuple[Operator, ...]:
        return (self.operator,)

    def forward(self, x: Features, blocks: Sequence[Block]) -> Prediction:
        return self.propagate(self.project(x), blocks)

    def propagate(
        self,
        z: Tensor,
        blocks: Sequence[Block],
        mix: Callable[[Tensor], Tensor] = lambda z: z,
    ) -> Prediction:
        """All layers, from $x W_{in}$ $[n_{src}, H]$ on.

        `mix` may exchange states between nodes, $[m, H]$ → $[m, H]$: the input of every later
        layer, after dropout, and the embedding go through it.
        """
        for layer, (linear, block) in enumerate(zip(self._maps()[:-1], blocks, strict=False)):
            if layer > 0:
                z = mix(self.drop(z)) @ linear.weight.t()
            z = self.aggregate(layer, z, block) + linear.bias
            if self.num_layers > 1:
                z = F.relu(z)
        if self.num_layers > 1:
            z = self.aggregate(self.num_layers - 1, mix(self.drop(z)), blocks[-1])
        z = mix(z)
        return Prediction(self.phi_out(z), z)

    def aggregate(self, layer: int, z: Tensor, block: Block) -> Tensor:
        """A layer's weighted sum of z $[n_{src}, H]$ over neighbours: $[n_{dst}, H]$.

        z comes after the layer's linear map, in the last of several layers before it.
        """
        return block.matrices[self.operator] @ z

    def _maps(self) -> list[nn.Linear]:
        return [self.phi_in, *self.between, self.phi_out]


class GAT(GCN):
    r"""Graph attention network (Veličković et al., ICLR '18), one head per layer,

    .. math:: z_u^{(l+1)} = \sigma\left(\sum_v w_{uv}^{(l)} W^{(l)} z_v^{(l)} + b^{(l)}\right),
              \quad w_{uv} = \mathrm{softmax}_v\,\mathrm{LeakyReLU}(a^\top [W z_u \,\|\, W z_v]),

    over the neighbours of u and u itself. Arguments and shapes as for :class:`GCN`.
    """

    kind: Kind = "attention"
    negative_slope = 0.2  # of LeakyReLU, as in the paper of GAT

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: int = 64,
        num_layers: int = 2,
        dropout: float = 0.0,
        direction: Direction = "along",
    ) -> None:
        super().__init__(num_features, num_classes, hidden, num_layers, dropout, direction)
        widths = [hidden] * max(1, num_layers - 1) + [num_classes] * (num_layers > 1)
        self.attention = nn.ParameterList(
            nn.init.xavier_uniform_(torch.empty(2, width)) for width in widths
        )

    def aggregate(self, layer: int, z: Tensor, block: Block) -> Tensor:
        vectors = self.attention[layer].t()
        if layer == self.num_layers - 1 > 0:
            vectors = self.phi_out.weight.t() @ vectors
        to_dst, to_src = (z @ vectors).split(1, dim=1)
        pattern = block.matrices[self.operator].pattern
        return attend(pattern, z, to_dst[: block.num_dst], to_src, self.negative_slope)


@dataclass(frozen=True)
class Backbone:
    """How nodes read their neighbours, plain or as the branches of CaNet.

    Args:
        name: On the command line and in configs.
        label, colour: In tables, figures and pages.
        summary: One line for listings.
        model: The plain model.
    """

    name: str
    label: str
    colour: Colour
    summary: str
    model: type[GCN]


BACKBONES: dict[str, Backbone] = {
    backbone.name: backbone
    for backbone in (
        Backbone("gcn", "GCN", Colour("#0072b2", "#4fa9e0"), "graph convolutions", GCN),
        Backbone("gat", "GAT", Colour("#009e73", "#3cc79f"), "graph attention, one head", GAT),
    )
}

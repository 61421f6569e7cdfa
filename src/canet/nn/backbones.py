"""Plain GCN and GAT on the same blocks: the backbones of every method but CaNet."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn.blocks import Block, Direction, Kind, Operator
from canet.nn.environment import Environment
from canet.nn.model import GraphModel
from canet.nn.propagation import AttentionBranches


class GCN(GraphModel):
    r"""Graph convolutional network (Kipf and Welling, ICLR '17) between two linear maps,

    .. math:: z^{(l+1)} = \sigma(\tilde D^{-1/2} (A + I) \tilde D^{-1/2} z^{(l)} W^{(l)} + b^{(l)}).

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
        self.layers = nn.ModuleList(self.make_layer(hidden) for _ in range(num_layers))

    @property
    def operators(self) -> tuple[Operator, ...]:
        return (self.operator,)

    def make_layer(self, hidden: int) -> nn.Module:
        layer = nn.Linear(hidden, hidden)
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    def convolve(self, layer: nn.Module, z: Tensor, block: Block) -> Tensor:
        convolved: Tensor = layer(block.matrices[self.operator] @ z)
        return convolved

    def propagate(
        self, z: Tensor, blocks: Sequence[Block]
    ) -> tuple[Tensor, tuple[Environment, ...]]:
        for layer, block in zip(self.layers, blocks, strict=True):
            z = F.relu(self.convolve(layer, self.drop(z), block))
        return z, ()


class GAT(GCN):
    r"""Graph attention network (Veličković et al., ICLR '18), one head per layer,

    .. math:: z_u^{(l+1)} = \sigma\left(\sum_v w_{uv}^{(l)} W^{(l)} z_v^{(l)}\right),

    with the weights of :class:`AttentionBranches`. Arguments and shapes as for :class:`GCN`.
    """

    kind: Kind = "attention"

    def make_layer(self, hidden: int) -> nn.Module:
        return AttentionBranches(hidden, 1)

    def convolve(self, layer: nn.Module, z: Tensor, block: Block) -> Tensor:
        convolved: Tensor = layer(
            z, block.matrices[self.operator].pattern, z.new_ones(block.num_dst, 1)
        )
        return convolved

"""Decoupled backbone: propagation without learned layers, then an MLP on each node."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn.backbones.backbone import Backbone
from canet.nn.backbones.mlp import LinearBranches
from canet.nn.blocks import Block, Operator
from canet.nn.layer import LayerInput
from canet.nn.model import Exchange, PlainModel, Prediction
from canet.nn.operations import mix_shared, multiply
from canet.util.colour import Colour


class HopBranches(LinearBranches):
    r"""K linear maps of the mean of a node's state and its propagated neighbours, mixed per node,
    with a residual connection,

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} W^{(k)} \tfrac12 \left(z_u
              + \sum_v \hat a_{uv} z_v\right) + z_u \right).

    Arguments and shapes as for :class:`Branches`.
    """

    def setup(self) -> None:
        super().setup()
        self.gather_operator = Operator("symmetric", self.direction)
        self.operators = (self.gather_operator,)

    def forward(self, states: LayerInput, e: Tensor) -> Tensor:
        mean = torch.lerp(states.own, states.gathered.neighbours, 0.5)
        return mix_shared(mean, self.weight, e, states.own)


class Decoupled(PlainModel):
    r"""Mean of projected features over 0 to L hops (Zhu and Koniusz, ICLR '21), then a small MLP,

    .. math:: z^{(1)} = \sigma\left(\frac{1}{L + 1} \sum_{l=0}^L \hat A^l x W_{in} + b_{in}\right),
              \quad z^{(2)} = \sigma(z^{(1)} W + b + z^{(1)}), \quad
              \hat y = \phi_{out}(z^{(2)}),

    with $\hat A$ as in :class:`GCN`. Features are projected before propagation, so that sparse
    features stay sparse. With `norm`, $z^{(1)}$ and $z^{(2)}$ are normalised. Arguments and shapes
    as for :class:`GraphModel`.
    """

    def setup(self) -> None:
        self.operator = Operator("renormalised", self.direction)
        self.inner = nn.Linear(self.hidden, self.hidden)

    @property
    def num_norms(self) -> int:
        return 2

    def next_states(
        self, layer: int, states: Tensor, block: Block, mix: Exchange = lambda z: z
    ) -> Tensor:
        """The states are the propagated features and, after the first layer, their sum."""
        z, total = states[:, : self.hidden].contiguous(), states[:, -self.hidden :]
        return torch.cat(self._hop(z, total, block, mix), dim=1)

    def last_prediction(self, states: Tensor, mix: Exchange = lambda z: z) -> Prediction:
        return self._predict(states[:, -self.hidden :], mix)

    def propagate(
        self, z: Tensor, blocks: Sequence[Block], mix: Exchange = lambda z: z
    ) -> Prediction:
        total = z
        for block in blocks:
            z, total = self._hop(z, total, block, mix)
        return self._predict(total, mix)

    def _hop(self, z: Tensor, total: Tensor, block: Block, mix: Exchange) -> tuple[Tensor, Tensor]:
        """Propagate z $[n_{src}, H]$ once, and add the result to the sum of all hops."""
        z = mix(multiply(block.matrices[self.operator], z))
        return z, total[: block.num_dst] + z

    def _predict(self, total: Tensor, mix: Exchange) -> Prediction:
        """Apply the MLP to the sum of all hops $[n, H]$."""
        z = F.relu(total / (self.num_layers + 1) + self.phi_in.bias)
        z = mix(self.drop(self.normalise(z, 0)))
        z = mix(self.normalise(F.relu(self.inner(z) + z), 1))
        return Prediction(self.phi_out(self.drop(z)), z)


BACKBONE = Backbone(
    name="decoupled",
    label="Decoupled",
    colour=Colour("#8a5a2b", "#c79a6b"),
    summary="mean of the features over several hops, then an MLP on each node",
    branches=HopBranches,
    model=Decoupled,
)

"""Graph isomorphism network: an MLP on the sum of a node and its neighbours."""

import torch
from torch import Tensor, nn

from canet.nn.backbones.backbone import Backbone
from canet.nn.blocks import Operator
from canet.nn.layer import Branches, LayerInput
from canet.nn.operations import mix_each
from canet.util.colour import Colour


class IsomorphismBranches(Branches):
    r"""K layers of GIN (Xu et al., ICLR '19), mixed per node, with a residual connection,

    .. math:: z'_u = \sigma\left( \sum_k e_{uk}\,\mathrm{MLP}^{(k)}\left((1 + \epsilon_k) z_u
              + \sum_v z_v\right) + z_u \right), \quad
              \mathrm{MLP}(x) = \sigma(x W_1 + b_1) W_2 + b_2.

    The first linear maps of all branches are computed as one product. Shapes as for
    :class:`Branches`.
    """

    def setup(self) -> None:
        self.gather_operator = Operator("sum", self.direction)
        self.operators = (self.gather_operator,)
        self.first = self.new_maps(self.hidden)
        self.second = self.new_maps(self.hidden)
        self.first_bias = nn.Parameter(torch.zeros(self.num_branches, self.hidden))
        self.second_bias = nn.Parameter(torch.zeros(self.num_branches, self.hidden))
        self.epsilon = nn.Parameter(torch.zeros(self.num_branches))

    def forward(self, states: LayerInput, e: Tensor) -> Tensor:
        branches, hidden, _ = self.first.shape
        own = (1 + self.epsilon).view(-1, 1, 1) * self.first
        both = torch.cat([self.first, own], dim=1).permute(1, 0, 2).reshape(2 * hidden, -1)
        inside = torch.addmm(self.first_bias.flatten(), states.gathered.joined, both).relu_()
        z = torch.addmm(states.own, e, self.second_bias)
        return mix_each(inside.view(-1, branches, hidden), self.second, e, z)


BACKBONE = Backbone(
    name="gin",
    label="GIN",
    colour=Colour("#e69f00", "#f5be4d"),
    summary="GIN: an MLP on the sum of a node and its neighbours",
    branches=IsomorphismBranches,
)

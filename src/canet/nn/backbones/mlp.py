"""MLP on the features of each node, without the graph."""

from torch import Tensor

from canet.nn.backbones.backbone import Backbone
from canet.nn.blocks import Operator
from canet.nn.layer import Branches, LayerInput
from canet.nn.operations import mix_shared
from canet.util.colour import Colour


class LinearBranches(Branches):
    r"""K linear maps of a node's state, mixed per node, with a residual connection,

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} W^{(k)} z_u + z_u \right).

    Edges are not used. Arguments and shapes as for :class:`Branches`.
    """

    operators: tuple[Operator, ...] = ()

    def setup(self) -> None:
        self.weight = self.new_maps(self.hidden)

    def forward(self, states: LayerInput, e: Tensor) -> Tensor:
        return mix_shared(states.own, self.weight, e, states.own)


BACKBONE = Backbone(
    name="mlp",
    label="MLP",
    colour=Colour("#5f6b73", "#9fb0bb"),
    summary="an MLP on each node, without edges",
    branches=LinearBranches,
)

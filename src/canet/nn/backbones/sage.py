"""GraphSAGE: the mean of the neighbours, and the node itself."""

from __future__ import annotations

from canet.nn.backbones.backbone import Backbone
from canet.nn.backbones.gcn import ConvolutionBranches
from canet.nn.blocks import Kind
from canet.util.colour import Colour


class MeanBranches(ConvolutionBranches):
    r"""K layers of GraphSAGE (Hamilton et al., NeurIPS '17) with its mean aggregator, mixed per
    node, and the residual link,

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} \left( W_D^{(k)} \frac{1}{d_u} \sum_v z_v
              + W_S^{(k)} z_u \right) + z_u \right);

    a node without neighbours has zeros for their mean. Shapes as for :class:`Branches`.
    """

    def kind(self) -> Kind:
        return "mean"


BACKBONE = Backbone(
    name="sage",
    label="SAGE",
    colour=Colour("#cc79a7", "#e29fc4"),
    summary="GraphSAGE: mean of the neighbours, and the node itself",
    branches=MeanBranches,
)

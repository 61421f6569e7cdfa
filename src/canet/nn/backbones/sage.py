"""GraphSAGE: the node itself and the mean of its neighbours."""

from canet.nn.backbones.backbone import Backbone
from canet.nn.backbones.gcn import ConvolutionBranches
from canet.util.colour import Colour


class MeanBranches(ConvolutionBranches):
    r"""K layers of GraphSAGE (Hamilton et al., NeurIPS '17) with mean aggregation, mixed per node,
    with a residual connection,

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} \left( W_D^{(k)} \frac{1}{d_u} \sum_v z_v
              + W_S^{(k)} z_u \right) + z_u \right).

    The mean is zero for a node without neighbours. Shapes as for :class:`Branches`.
    """

    kind = "mean"


BACKBONE = Backbone(
    name="sage",
    label="SAGE",
    colour=Colour("#cc79a7", "#e29fc4"),
    summary="GraphSAGE: the node itself and the mean of its neighbours",
    branches=MeanBranches,
)

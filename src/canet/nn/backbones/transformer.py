"""Graph Transformer: linear attention over the whole graph, and a graph convolution."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.errors import InputError
from canet.nn.backbones.backbone import Backbone
from canet.nn.blocks import Operator
from canet.nn.layer import Branches, LayerInput
from canet.nn.operations import Gathered, attend_globally, mix_joined, sum_graphs
from canet.util.colour import Colour


class TransformerBranches(Branches):
    r"""K layers of a graph Transformer similar to SGFormer (Wu et al., NeurIPS '23), mixed per
    node, with a residual connection,

    .. math:: z' = \sigma\left( \sum_k e_k \odot \left[\tfrac12 (\hat A z + G) \,\|\, z\right]
              W^{(k)} + z \right), \qquad
              G = \frac{N z + Q (K^\top z)}{N + Q (K^\top 1)},

    with N the number of nodes of a node's graph, $\hat A$ as in CaNet-GCN, and the rows of
    $Q = z W_Q + b_Q$ and $K = z W_K + b_K$ scaled to unit norm. A node attends only to its own
    graph: the nodes with the same graph number, or its connected component if there are no graph
    numbers. All branches share $W_Q$ and $W_K$, so that $\hat A z$ and G are computed once.

    Arguments and shapes as for :class:`Branches`.
    """

    def setup(self) -> None:
        if self.hidden < 2:
            raise InputError(
                "backbone 'transformer' requires hidden >= 2, because with hidden=1 its attention "
                "weights can sum to zero"
            )
        self.gather_operator = Operator("symmetric", self.direction)
        self.operators = (self.gather_operator, Operator("graph"))
        self.weight = self.new_maps(2 * self.hidden)
        self.query = nn.Linear(self.hidden, self.hidden)
        self.key = nn.Linear(self.hidden, self.hidden)

    def projection(self) -> Tensor:
        """$[W_Q \\| W_K]$, $[H, 2H]$."""
        return torch.cat([self.query.weight, self.key.weight]).t()

    def graph_sums(self, z: Tensor, number: Tensor, num_graphs: int) -> Tensor:
        return sum_graphs(F.normalize(self.key(z)), z, number, num_graphs)

    def forward(self, states: LayerInput, e: Tensor) -> Tensor:
        query, key = states.projected(self).chunk(2, dim=1)
        query = F.normalize(query[: e.shape[0]] + self.query.bias)
        key = F.normalize(key + self.key.bias)
        assert states.block.graphs is not None
        whole = attend_globally(states.block.graphs, query, key, states.z, states.own)
        gathered = Gathered(torch.lerp(states.gathered.neighbours, whole, 0.5), states.own)
        return mix_joined(gathered, self.weight, e)


BACKBONE = Backbone(
    name="transformer",
    label="Transformer",
    colour=Colour("#7b4fa3", "#b58ad6"),
    summary="linear attention over the whole graph, and graph convolutions",
    branches=TransformerBranches,
)

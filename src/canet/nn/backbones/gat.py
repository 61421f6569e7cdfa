"""Attention over neighbours: the branches of CaNet-GAT, and a plain GAT."""

import math

import torch
from torch import Tensor, nn

from canet.nn.backbones.backbone import Backbone
from canet.nn.backbones.gcn import GCN
from canet.nn.blocks import Block, Kind, Operator
from canet.nn.layer import Branches, LayerInput
from canet.nn.operations import attend, mix_attention
from canet.util.colour import Colour

NEGATIVE_SLOPE = 0.01  # LeakyReLU of CaNet-GAT, as in the published code (not in the paper)


class AttentionBranches(Branches):
    r"""K attention layers, mixed per node, with a residual connection (CaNet-GAT),

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} \sum_v w_{uv}^{(k)} W_D^{(k)} z_v + z_u \right),
              \qquad w_{uv}^{(k)} = \mathrm{softmax}_v\,\mathrm{LeakyReLU}\left(
              b^{(k)\top} [W_D^{(k)} z_u \,\|\, W_D^{(k)} z_v]\right),

    over the neighbours of $u$ and $u$ itself. The weight of an edge multiplies the exponentials of
    the softmax; that of $u$ itself is 1. The weighted sum commutes with the linear map and is
    computed first, so that no tensor of size edges × H is stored. Arguments and shapes as for
    :class:`Branches`.
    """

    def setup(self) -> None:
        self.operator = Operator("attention", self.direction)
        self.operators = (self.operator,)
        self.weight = self.new_maps(self.hidden)
        bound = math.sqrt(2) * math.sqrt(6 / (2 * self.hidden + self.num_branches))
        self.attention_dst, self.attention_src = (
            nn.Parameter(torch.empty(self.num_branches, self.hidden).uniform_(-bound, bound))
            for _ in range(2)
        )

    def projection(self) -> Tensor:
        """Map from z to the K scores of a destination and of a source: $[H, 2K]$.

        Its columns are $W_D^{(k)} b^{(k)}$, for each half of $b^{(k)}$.
        """
        vectors = torch.stack([self.attention_dst, self.attention_src])
        return torch.einsum("kio,jko->ijk", self.weight, vectors).flatten(1)

    def forward(self, states: LayerInput, e: Tensor) -> Tensor:
        score_dst, score_src = states.projected(self).chunk(2, dim=1)
        score_dst = score_dst[: e.shape[0]]
        matrix = states.block.matrices[self.operator]
        log_weight = matrix.log_value if states.block.is_weighted else None
        scores = score_dst, score_src
        return mix_attention(
            matrix.pattern, states.z, *scores, self.weight, e, NEGATIVE_SLOPE, log_weight
        )


class GAT(GCN):
    r"""Graph attention network (Veličković et al., ICLR '18), one head per layer,

    .. math:: z_u^{(l+1)} = \sigma\left(\sum_v w_{uv}^{(l)} W^{(l)} z_v^{(l)} + b^{(l)}\right),
              \quad w_{uv} = \mathrm{softmax}_v\,\mathrm{LeakyReLU}(a^\top [W z_u \,\|\, W z_v]),

    over the neighbours of u and u itself. Arguments and shapes as for :class:`GCN`.
    """

    kind: Kind = "attention"
    negative_slope = 0.2  # LeakyReLU, as in the GAT paper

    def setup(self) -> None:
        super().setup()
        has_output_layer = self.num_layers > 1
        widths = [self.hidden] * max(1, self.num_layers - 1)
        widths += [self.phi_out.out_features] * has_output_layer
        self.attention = nn.ParameterList(
            nn.init.xavier_uniform_(torch.empty(2, width)) for width in widths
        )

    def aggregate(self, layer: int, z: Tensor, block: Block) -> Tensor:
        vectors = self.attention[layer].t()
        if layer == self.num_layers - 1 > 0:
            vectors = self.phi_out.weight.t() @ vectors
        to_dst, to_src = (z @ vectors).split(1, dim=1)
        matrix = block.matrices[self.operator]
        log_weight = matrix.log_value if block.is_weighted else None
        scores = to_dst[: block.num_dst], to_src
        return attend(matrix.pattern, z, *scores, self.negative_slope, log_weight)


BACKBONE = Backbone(
    name="gat",
    label="GAT",
    colour=Colour("#009e73", "#3cc79f"),
    summary="attention over neighbours, one head",
    branches=AttentionBranches,
    model=GAT,
)

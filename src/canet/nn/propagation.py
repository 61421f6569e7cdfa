"""Mixture-of-expert propagation: K branches per layer, mixed by each node's environment."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn import kernels
from canet.nn.sparse_matrix import Pattern, SparseMatrix

NEGATIVE_SLOPE = 0.2


class ConvolutionBranches(nn.Module):
    r"""K graph convolutions, mixed per node (CaNet-GCN),

    .. math:: \sum_k e_{uk} \left( W_D^{(k)} \sum_v \hat a_{uv} z_v + W_S^{(k)} z_u \right).

    Propagation is linear, so the branches share one $\hat A z$, whatever K is.

    Args:
        hidden: $H$.
        num_branches: $K$.

    Shapes:
        - inputs $[\hat A z \,\|\, z]$ $[n, 2H]$, e $[n, K]$ → $[n, H]$
    """

    def __init__(self, hidden: int, num_branches: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)
        self.weight = nn.Parameter(torch.empty(num_branches, 2 * hidden, hidden))
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, inputs: Tensor, e: Tensor) -> Tensor:
        return mix_branches(inputs, self.weight, e)


class AttentionBranches(nn.Module):
    r"""K attention networks, mixed per node (CaNet-GAT),

    .. math:: \sum_k e_{uk} \sum_v w_{uv}^{(k)} W_D^{(k)} z_v, \qquad
              w_{uv}^{(k)} = \mathrm{softmax}_v\,\mathrm{LeakyReLU}\left(
              b^{(k)\top} [W_D^{(k)} z_u \,\|\, W_D^{(k)} z_v]\right),

    over the neighbours of $u$ and $u$ itself.

    Args:
        hidden: $H$.
        num_branches: $K$.

    Shapes:
        - z $[n_{src}, H]$, neighbourhood $[n_{dst}, n_{src}]$, e $[n_{dst}, K]$
          → $[n_{dst}, H]$
    """

    def __init__(self, hidden: int, num_branches: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)
        self.weight = nn.Parameter(torch.empty(num_branches, hidden, hidden))
        nn.init.uniform_(self.weight, -bound, bound)
        bound = math.sqrt(2) * math.sqrt(6 / (2 * hidden + 1))
        self.attention_dst = nn.Parameter(torch.empty(num_branches, hidden).uniform_(-bound, bound))
        self.attention_src = nn.Parameter(torch.empty(num_branches, hidden).uniform_(-bound, bound))

    def forward(self, z: Tensor, neighbourhood: Pattern, e: Tensor) -> Tensor:
        score_dst = z[: e.shape[0]] @ torch.einsum("kio,ko->ik", self.weight, self.attention_dst)
        score_src = z @ torch.einsum("kio,ko->ik", self.weight, self.attention_src)
        return mix_branches(attend(neighbourhood, z, score_dst, score_src), self.weight, e)


def mix_branches(inputs: Tensor, weight: Tensor, e: Tensor) -> Tensor:
    r"""$\sum_k e_{uk} W^{(k)\top} x_u^{(k)}$.

    Shapes:
        - inputs $[n, I]$ (the same for all branches) or $[n, K, I]$, weight $[K, I, O]$,
          e $[n, K]$ → $[n, O]$
    """
    if kernels.fused_mixture(inputs, weight):
        return kernels.mix(inputs, weight, e)
    if inputs.dim() == 3:
        return (inputs * e.unsqueeze(-1)).flatten(1) @ weight.flatten(0, 1)
    branches, width, out = weight.shape
    outputs = inputs @ weight.permute(1, 0, 2).reshape(width, -1)
    return (outputs.view(-1, branches, out) * e.unsqueeze(-1)).sum(dim=1)


def attend(neighbourhood: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor) -> Tensor:
    r"""Attention of K branches over the same states: $\sum_v w_{uv}^{(k)} z_v$.

    Branches attend before their linear maps, which commute with the sum: a neighbour's state is
    read once for all of them, and nothing of size edges × H is stored.

    Shapes:
        - z $[n_{src}, H]$, scores $[n_{dst}, K]$ and $[n_{src}, K]$ → $[n_{dst}, K, H]$
    """
    if kernels.fused_attention(z):
        return kernels.attend(neighbourhood, z, score_dst, score_src, NEGATIVE_SLOPE)
    branches = score_dst.shape[1]
    of_states, of_scores = neighbourhood.by_branch(branches)
    weights = attention_weights(of_scores, score_dst.reshape(-1, 1), score_src.reshape(-1, 1))
    gathered = SparseMatrix(of_states, weights.flatten()) @ z
    return gathered.view(-1, branches, z.shape[1])


def attention_weights(pattern: Pattern, score_dst: Tensor, score_src: Tensor) -> Tensor:
    """Softmax over each row's entries of LeakyReLU(score_dst[u] + score_src[v]): $[nnz, k]$."""
    scores = pattern.gather_rows(score_dst) + pattern.gather_cols(score_src)
    scores = F.leaky_relu(scores, NEGATIVE_SLOPE)
    exponents = (scores - pattern.gather_rows(pattern.max_rows(scores))).exp()
    return exponents / pattern.gather_rows(pattern.sum_rows(exponents))

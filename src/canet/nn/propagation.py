"""Mixture-of-expert propagation: K branches per layer, mixed by each node's environment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from canet.nn import kernels
from canet.nn.sparse_matrix import Pattern, SparseMatrix

NEGATIVE_SLOPE = 0.2


class ConvolutionBranches(nn.Module):
    r"""K graph convolutions, mixed per node, and the residual link (CaNet-GCN),

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} \left( W_D^{(k)} \sum_v \hat a_{uv} z_v
              + W_S^{(k)} z_u \right) + z_u \right), \quad \sigma = \mathrm{ReLU}.

    Propagation is linear, so the branches share one $\hat A z$, whatever K is.

    Args:
        hidden: $H$.
        num_branches: $K$.

    Shapes:
        - inputs $[\hat A z \,\|\, z]$ $[n, 2H]$, z $[n, H]$, e $[n, K]$ → $[n, H]$
    """

    def __init__(self, hidden: int, num_branches: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)
        self.weight = nn.Parameter(torch.empty(num_branches, 2 * hidden, hidden))
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, inputs: Tensor, z: Tensor, e: Tensor) -> Tensor:
        return next_states(inputs, self.weight, e, z)


class AttentionBranches(nn.Module):
    r"""K attention networks, mixed per node, and the residual link (CaNet-GAT),

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} \sum_v w_{uv}^{(k)} W_D^{(k)} z_v + z_u \right),
              \qquad w_{uv}^{(k)} = \mathrm{softmax}_v\,\mathrm{LeakyReLU}\left(
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
        vectors = torch.stack([self.attention_dst, self.attention_src])
        scores = z @ torch.einsum("kio,jko->ijk", self.weight, vectors).flatten(1)
        score_dst, score_src = scores.chunk(2, dim=1)
        gathered = attend_each(neighbourhood, z, score_dst[: e.shape[0]], score_src)
        return next_states(gathered, self.weight, e, z[: e.shape[0]])


def next_states(inputs: Tensor | Iterable[Tensor], weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    """`mix_branches`, the residual link z $[n, O]$ and ReLU, in one kernel where there is one."""
    if isinstance(inputs, Tensor) and kernels.fused_mixture(inputs, weight):
        return kernels.mix(inputs, weight, e, z)
    return F.relu(mix_branches(inputs, weight, e) + z)


def mix_branches(inputs: Tensor | Iterable[Tensor], weight: Tensor, e: Tensor) -> Tensor:
    r"""$\sum_k e_{uk} W^{(k)\top} x_u^{(k)}$.

    Shapes:
        - inputs $[n, I]$, the same for all branches, or $[n, K, I]$, or K times $[n, I]$,
          weight $[K, I, O]$, e $[n, K]$ → $[n, O]$
    """
    if not isinstance(inputs, Tensor):
        mixed = weight.new_zeros(e.shape[0], weight.shape[2])
        for of_branch in zip(inputs, weight.unbind(), e.unbind(dim=1), strict=True):
            mixed = _WithBranch.apply(mixed, *of_branch)
        return mixed
    if inputs.dim() == 3:
        return mix_branches(inputs.unbind(dim=1), weight, e)
    branches, width, out = weight.shape
    outputs = inputs @ weight.permute(1, 0, 2).reshape(width, -1)
    return (outputs.view(-1, branches, out) * e.unsqueeze(-1)).sum(dim=1)


def attend_each(
    neighbourhood: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor
) -> Tensor | Iterator[Tensor]:
    r"""Attention of K branches over the same states: $\sum_v w_{uv}^{(k)} z_v$.

    Branches attend before their linear maps, which commute with the sum: a neighbour's state is
    read once for all of them, and nothing of size edges × H is stored.

    Shapes:
        - z $[n_{src}, H]$, scores $[n_{dst}, K]$ and $[n_{src}, K]$ → $[n_{dst}, K, H]$ where
          branches are computed at once, else K times $[n_{dst}, H]$, one after the other
    """
    if kernels.fused_attention(z):
        return kernels.attend(neighbourhood, z, score_dst, score_src, NEGATIVE_SLOPE)
    pairs = zip(score_dst.split(1, dim=1), score_src.split(1, dim=1), strict=True)
    return (
        SparseMatrix(neighbourhood, attention_weights(neighbourhood, *pair).flatten()) @ z
        for pair in pairs
    )


def attend(neighbourhood: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor) -> Tensor:
    """Attention of one branch: `attend_each` with K = 1, → $[n_{dst}, H]$."""
    gathered = attend_each(neighbourhood, z, score_dst, score_src)
    return gathered.squeeze(1) if isinstance(gathered, Tensor) else next(gathered)


def attention_weights(pattern: Pattern, score_dst: Tensor, score_src: Tensor) -> Tensor:
    """Softmax over each row's entries of LeakyReLU(score_dst[u] + score_src[v]).

    Shapes:
        - scores $[n_{dst}, k]$ and $[n_{src}, k]$ → $[nnz, k]$
    """
    weights: Tensor = _AttentionWeights.apply(score_dst, score_src, pattern)
    return weights


class _AttentionWeights(torch.autograd.Function):
    """Keeps the weights and the signs of the scores, and nothing else of the size of the edges."""

    @staticmethod
    def forward(ctx: Any, score_dst: Tensor, score_src: Tensor, pattern: Pattern) -> Tensor:
        scores = pattern.at_rows(score_dst).add_(pattern.at_cols(score_src))
        positive = scores > 0
        scores = F.leaky_relu_(scores, NEGATIVE_SLOPE)
        weights = scores.sub_(pattern.at_rows(pattern.max_rows(scores))).exp_()
        weights.div_(pattern.at_rows(pattern.sum_rows(weights)))
        ctx.pattern = pattern
        ctx.save_for_backward(weights, positive)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, positive = ctx.saved_tensors
        pattern: Pattern = ctx.pattern
        grad = grad * weights
        grad = grad.addcmul_(weights, pattern.at_rows(pattern.sum_rows(grad)), value=-1)
        grad = torch.where(positive, grad, NEGATIVE_SLOPE * grad)
        return pattern.sum_rows(grad), pattern.sum_cols(grad), None


class _WithBranch(torch.autograd.Function):
    """Adds one branch to a mixture in place; keeps the branch's input, and not its output.

    Backward, a branch is done with before the next one's gradients exist.
    """

    @staticmethod
    def forward(ctx: Any, mixed: Tensor, inputs: Tensor, weight: Tensor, share: Tensor) -> Tensor:
        share = share.unsqueeze(1)
        ctx.save_for_backward(inputs, weight, share)
        ctx.mark_dirty(mixed)
        return mixed.addcmul_(inputs @ weight, share)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        inputs, weight, share = ctx.saved_tensors
        back = grad @ weight.t()
        grad_inputs = back * share
        grad_weight = inputs.t() @ (grad * share)
        return grad, grad_inputs, grad_weight, back.mul_(inputs).sum(dim=1)

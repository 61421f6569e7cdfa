"""Mixture-of-expert propagation: K branches per layer, mixed by each node's environment."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from canet.nn import kernels
from canet.nn.sparse_matrix import Pattern, SparseMatrix

NEGATIVE_SLOPE = 0.01  # of CaNet-GAT's LeakyReLU: as published, the paper names none


class ConvolutionBranches(nn.Module):
    r"""K graph convolutions, mixed per node, and the residual link (CaNet-GCN),

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} \left( W_D^{(k)} \sum_v \hat a_{uv} z_v
              + W_S^{(k)} z_u \right) + z_u \right), \quad \sigma = \mathrm{ReLU}.

    Propagation is linear, so the branches share one $\hat A z$, whatever K is.

    Args:
        hidden: $H$.
        num_branches: $K$.

    Shapes:
        - gathered $\hat A z$ $[n, H]$, z $[n, H]$, e $[n, K]$ → $[n, H]$
    """

    def __init__(self, hidden: int, num_branches: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)
        self.weight = nn.Parameter(torch.empty(num_branches, 2 * hidden, hidden))
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, gathered: Tensor, z: Tensor, e: Tensor) -> Tensor:
        return next_states(gathered, self.weight, e, z)


class AttentionBranches(nn.Module):
    r"""K attention networks, mixed per node, and the residual link (CaNet-GAT),

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} \sum_v w_{uv}^{(k)} W_D^{(k)} z_v + z_u \right),
              \qquad w_{uv}^{(k)} = \mathrm{softmax}_v\,\mathrm{LeakyReLU}\left(
              b^{(k)\top} [W_D^{(k)} z_u \,\|\, W_D^{(k)} z_v]\right),

    over the neighbours of $u$ and $u$ itself. Branches attend before their linear maps, which
    commute with the sum: nothing of size edges × H is stored.

    Args:
        hidden: $H$.
        num_branches: $K$.

    Shapes:
        - z $[n_{src}, H]$, scores z `maps` $[n_{src}, 2K]$, neighbourhood $[n_{dst}, n_{src}]$,
          e $[n_{dst}, K]$ → $[n_{dst}, H]$
    """

    def __init__(self, hidden: int, num_branches: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)
        self.weight = nn.Parameter(torch.empty(num_branches, hidden, hidden))
        nn.init.uniform_(self.weight, -bound, bound)
        bound = math.sqrt(2) * math.sqrt(6 / (2 * hidden + num_branches))
        self.attention_dst = nn.Parameter(torch.empty(num_branches, hidden).uniform_(-bound, bound))
        self.attention_src = nn.Parameter(torch.empty(num_branches, hidden).uniform_(-bound, bound))

    def maps(self) -> Tensor:
        """What makes a reader's K scores and a neighbour's of z: $W_D^{(k)} b^{(k)}$, $[H, 2K]$."""
        vectors = torch.stack([self.attention_dst, self.attention_src])
        return torch.einsum("kio,jko->ijk", self.weight, vectors).flatten(1)

    def forward(self, z: Tensor, scores: Tensor, neighbourhood: Pattern, e: Tensor) -> Tensor:
        score_dst, score_src = scores.chunk(2, dim=1)
        score_dst = score_dst[: e.shape[0]]
        if kernels.fused_attention(z):
            gathered, own = kernels.attend(neighbourhood, z, score_dst, score_src, NEGATIVE_SLOPE)
            return next_states(gathered, self.weight, e, own)
        mixed = mix_attention(
            neighbourhood, z, score_dst, score_src, self.weight, e, NEGATIVE_SLOPE
        )
        return F.relu(mixed)


def next_states(gathered: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    """`mix_branches`, the residual link and ReLU, in one kernel where there is one.

    Shapes:
        - gathered $[n, H]$ or $[n, K, H]$, weight $[K, H, O]$, or $[K, H + O, O]$ where the
          branches map z too, e $[n, K]$, z $[n, O]$ → $[n, O]$
    """
    if kernels.fused_mixture(gathered, weight):
        return kernels.mix(gathered, weight, e, z)
    if weight.shape[1] > gathered.shape[-1]:
        gathered = torch.cat([gathered, z], dim=1)
    return mix_branches(gathered, weight, e).add_(z).relu_()


def mix_branches(inputs: Tensor, weight: Tensor, e: Tensor) -> Tensor:
    r"""$\sum_k e_{uk} W^{(k)\top} x_u^{(k)}$.

    Shapes:
        - inputs $[n, I]$, the same for all branches, or $[n, K, I]$, weight $[K, I, O]$,
          e $[n, K]$ → $[n, O]$
    """
    if inputs.dim() == 3:
        return torch.einsum("nki,kio,nk->no", inputs, weight, e)
    branches, width, out = weight.shape
    outputs = inputs @ weight.permute(1, 0, 2).reshape(width, -1)
    mixed: Tensor = _Mixed.apply(outputs.view(-1, branches, out), e)
    return mixed


def mix_attention(
    neighbourhood: Pattern,
    z: Tensor,
    score_dst: Tensor,
    score_src: Tensor,
    weight: Tensor,
    e: Tensor,
    slope: float,
) -> Tensor:
    """`attend` of each branch, `mix_branches` and the residual link, all in the same memory.

    Shapes:
        - z $[n_{src}, H]$, scores $[n_{dst}, K]$ and $[n_{src}, K]$, weight $[K, H, H]$,
          e $[n_{dst}, K]$ → $[n_{dst}, H]$
    """
    keep = torch.is_grad_enabled()
    mixed: Tensor = _MixedAttention.apply(
        z, score_dst, score_src, weight, e, neighbourhood, slope, keep
    )
    return mixed


def attend(
    neighbourhood: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor, slope: float
) -> Tensor:
    r"""Attention of one branch, with LeakyReLU's slope below zero: $\sum_v w_{uv} z_v$.

    Shapes:
        - z $[n_{src}, H]$, scores $[n_{dst}, 1]$ and $[n_{src}, 1]$ → $[n_{dst}, H]$
    """
    if kernels.fused_attention(z):
        gathered, _ = kernels.attend(neighbourhood, z, score_dst, score_src, slope)
        return gathered.squeeze(1)
    weights = attention_weights(neighbourhood, score_dst, score_src, slope)
    return SparseMatrix(neighbourhood, weights.flatten()) @ z


def attention_weights(
    pattern: Pattern, score_dst: Tensor, score_src: Tensor, slope: float
) -> Tensor:
    """Softmax over each row's entries of LeakyReLU(score_dst[u] + score_src[v]).

    Each row's maximum is subtracted first, so that no exponential overflows or vanishes with its
    whole row.

    Shapes:
        - scores $[n_{dst}, k]$ and $[n_{src}, k]$ → $[nnz, k]$
    """
    weights: Tensor = _AttentionWeights.apply(score_dst, score_src, pattern, slope)
    return weights


class _AttentionWeights(torch.autograd.Function):
    """Keeps the weights and the signs of the scores, and nothing else of the size of the edges."""

    @staticmethod
    def forward(
        ctx: Any, score_dst: Tensor, score_src: Tensor, pattern: Pattern, slope: float
    ) -> Tensor:
        weights, positive = _weigh(pattern, score_dst, score_src, slope)
        ctx.pattern, ctx.slope = pattern, slope
        ctx.save_for_backward(weights, positive)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weights, positive = ctx.saved_tensors
        return *_unweigh(ctx.pattern, weights, positive, grad, ctx.slope), None, None


class _Mixed(torch.autograd.Function):
    r"""$\sum_k e_{uk} y_{uk}$ for y $[n, K, O]$ and e $[n, K]$, with no other tensor of y's size.

    Backward, the gradient of y is one.
    """

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, e: Tensor) -> Tensor:
        ctx.save_for_backward(outputs, e)
        mixed = outputs[:, 0] * e[:, :1]
        for k in range(1, e.shape[1]):
            mixed.addcmul_(outputs[:, k], e[:, k : k + 1])
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        outputs, e = ctx.saved_tensors
        grad_e = torch.bmm(outputs, grad.unsqueeze(-1)).squeeze(-1)
        return grad.unsqueeze(1) * e.unsqueeze(-1), grad_e


class _MixedAttention(torch.autograd.Function):
    """Keeps what each branch attended to and its weights, and not what it made of it.

    Backward, the residual link begins the gradient of z, to which all branches add; they compute
    theirs in two buffers.
    """

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        score_dst: Tensor,
        score_src: Tensor,
        weight: Tensor,
        e: Tensor,
        pattern: Pattern,
        slope: float,
        keep: bool,
    ) -> Tensor:
        mixed = z[: e.shape[0]].clone()
        kept = []
        for k, weight_k in enumerate(weight):
            one = slice(k, k + 1)
            weights, positive = _weigh(pattern, score_dst[:, one], score_src[:, one], slope)
            gathered = SparseMatrix(pattern, weights.flatten()) @ z
            mixed.addcmul_(gathered @ weight_k, e[:, one])
            if keep:
                kept += [weights, positive, gathered]
        ctx.pattern, ctx.slope = pattern, slope
        ctx.save_for_backward(z, weight, e, *kept)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, None, None, None]:
        z, weight, e, *kept = ctx.saved_tensors
        pattern: Pattern = ctx.pattern
        grad_z, grad_weight, grad_e = torch.empty_like(z), torch.empty_like(weight), []
        grad_z[: grad.shape[0]], grad_z[grad.shape[0] :] = grad, 0
        grad_dst, grad_src = [], []
        product, back = (torch.empty_like(grad) for _ in range(2))
        for k, weight_k in enumerate(weight):
            weights, positive, gathered = kept[3 * k : 3 * k + 3]
            share = e[:, k : k + 1]
            torch.mm(gathered.t(), grad * share, out=grad_weight[k])
            torch.mm(grad, weight_k.t(), out=back)
            grad_e.append(torch.mul(back, gathered, out=product).sum(dim=1))
            back.mul_(share)
            matrix = SparseMatrix(pattern, weights.flatten())
            matrix.add_transposed_product(back, grad_z)
            grad_weights = matrix.sampled_product(back, z).unsqueeze(1)
            dst, src = _unweigh(pattern, weights, positive, grad_weights, ctx.slope)
            grad_dst.append(dst)
            grad_src.append(src)
        grad_scores = torch.cat(grad_dst, dim=1), torch.cat(grad_src, dim=1)
        return grad_z, *grad_scores, grad_weight, torch.stack(grad_e, dim=1), None, None, None


def _weigh(
    pattern: Pattern, score_dst: Tensor, score_src: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """`attention_weights`, and where the scores are positive, both $[nnz, k]$."""
    scores = pattern.at_rows(score_dst).add_(pattern.at_cols(score_src))
    positive = scores > 0
    scores = F.leaky_relu_(scores, slope)
    weights = scores.sub_(pattern.at_rows(pattern.max_rows(scores))).exp_()
    return weights.div_(pattern.at_rows(pattern.sum_rows(weights))), positive


def _unweigh(
    pattern: Pattern, weights: Tensor, positive: Tensor, grad: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Gradients of the scores, $[n_{dst}, k]$ and $[n_{src}, k]$, from those of the weights."""
    grad = grad * weights
    grad = grad.addcmul_(weights, pattern.at_rows(pattern.sum_rows(grad)), value=-1)
    grad = torch.where(positive, grad, slope * grad)
    return pattern.sum_rows(grad), pattern.sum_cols(grad)

"""Attention over neighbours, for one branch or for K branches."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from canet.nn.operations.fused import can_fuse_attention
from canet.nn.operations.mixtures import mix_each
from canet.nn.operations.products import add_transposed_product, multiply, product, sampled_product
from canet.nn.sparse_matrix import Pattern, SparseMatrix


def attend(
    neighbourhood: Pattern,
    z: Tensor,
    score_dst: Tensor,
    score_src: Tensor,
    slope: float,
    log_weight: Tensor | None = None,
) -> Tensor:
    r"""Attention of one branch, $\sum_v w_{uv} z_v$; `slope` is the negative slope of LeakyReLU.

    `log_weight` are the logarithms of edge weights, which are added to the scores. The fused kernel
    is for graphs without weights.

    Shapes:
        - z $[n_{src}, H]$, scores $[n_{dst}, 1]$ and $[n_{src}, 1]$, log_weight $[nnz]$
          → $[n_{dst}, H]$
    """
    if log_weight is None and can_fuse_attention(z):
        return fused_attend(neighbourhood, z, score_dst, score_src, slope)[0].squeeze(1)
    scores = score_dst, score_src
    weights = AttentionWeights.apply(*scores, neighbourhood, slope, log_weight)
    return multiply(SparseMatrix(neighbourhood, weights.flatten()), z)


def mix_attention(
    neighbourhood: Pattern,
    z: Tensor,
    score_dst: Tensor,
    score_src: Tensor,
    weight: Tensor,
    e: Tensor,
    slope: float,
    log_weight: Tensor | None = None,
) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} \sum_v w_{uv}^{(k)} z_v + z_u)$.

    Shapes:
        - z $[n_{src}, H]$, scores $[n_{dst}, K]$ and $[n_{src}, K]$, weight $[K, H, H]$,
          e $[n_{dst}, K]$, log_weight $[nnz]$ → $[n_{dst}, H]$
    """
    if log_weight is None and can_fuse_attention(z):
        attended, own = fused_attend(neighbourhood, z, score_dst, score_src, slope)
        return mix_each(attended, weight, e, own)
    inputs = z, score_dst, score_src, weight, e
    keep = torch.is_grad_enabled()
    return F.relu(_MixedAttention.apply(*inputs, neighbourhood, slope, log_weight, keep))


def fused_attend(
    neighbourhood: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Attention of K branches in one pass over the neighbours, $[n_{dst}, K, H]$, and the states of
    the destinations, $[n_{dst}, H]$.
    """
    from canet.nn.kernels.attention import FusedAttention

    return FusedAttention.apply(z, score_dst, score_src, neighbourhood, slope)


class AttentionWeights(torch.autograd.Function):
    """Softmax of LeakyReLU(score_dst[u] + score_src[v]) + log_weight over the entries of each row.

    The maximum of each row is subtracted first, for numerical stability. Only the weights and the
    signs of the scores are saved for the backward pass.

    Shapes:
        - scores $[n_{dst}, k]$ and $[n_{src}, k]$, log_weight $[nnz]$ → $[nnz, k]$
    """

    @staticmethod
    def forward(
        ctx: Any,
        score_dst: Tensor,
        score_src: Tensor,
        pattern: Pattern,
        slope: float,
        log_weight: Tensor | None = None,
    ) -> Tensor:
        weights, positive = _weigh(pattern, score_dst, score_src, slope, log_weight)
        ctx.pattern, ctx.slope = pattern, slope
        ctx.save_for_backward(weights, positive)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        weights, positive = ctx.saved_tensors
        return *_unweigh(ctx.pattern, weights, positive, grad, ctx.slope), None, None, None


class _MixedAttention(torch.autograd.Function):
    """`attend` for each branch, `mix_branches` and the residual connection, with reused buffers.

    Saves the attention weights and weighted sums of each branch, but not the mapped sums.
    In the backward pass, the gradient of z starts with that of the residual connection. The
    branches add theirs, and share two buffers.
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
        log_weight: Tensor | None,
        keep: bool,
    ) -> Tensor:
        mixed = z[: e.shape[0]].clone()
        saved = []
        for k, weight_k in enumerate(weight):
            one = slice(k, k + 1)
            scores = score_dst[:, one], score_src[:, one]
            weights, positive = _weigh(pattern, *scores, slope, log_weight)
            gathered = product(SparseMatrix(pattern, weights.flatten()), z)
            mixed.addcmul_(gathered @ weight_k, e[:, one])
            if keep:
                saved += [weights, positive, gathered]
        ctx.pattern, ctx.slope = pattern, slope
        ctx.save_for_backward(z, weight, e, *saved)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, None, None, None, None]:
        z, weight, e, *saved = ctx.saved_tensors
        pattern = ctx.pattern
        grad_z, grad_weight, grad_e = torch.empty_like(z), torch.empty_like(weight), []
        grad_z[: grad.shape[0]], grad_z[grad.shape[0] :] = grad, 0
        grad_dst, grad_src = [], []
        product, back = (torch.empty_like(grad) for _ in range(2))
        for k, weight_k in enumerate(weight):
            weights, positive, gathered = saved[3 * k : 3 * k + 3]
            share = e[:, k : k + 1]
            torch.mm(gathered.t(), grad * share, out=grad_weight[k])
            torch.mm(grad, weight_k.t(), out=back)
            grad_e.append(torch.mul(back, gathered, out=product).sum(dim=1))
            back.mul_(share)
            add_transposed_product(SparseMatrix(pattern, weights.flatten()), back, grad_z)
            grad_weights = sampled_product(pattern, back, z).unsqueeze(1)
            dst, src = _unweigh(pattern, weights, positive, grad_weights, ctx.slope)
            grad_dst.append(dst)
            grad_src.append(src)
        grad_scores = torch.cat(grad_dst, dim=1), torch.cat(grad_src, dim=1)
        grads = grad_z, *grad_scores, grad_weight, torch.stack(grad_e, dim=1)
        return *grads, None, None, None, None


def _weigh(
    pattern: Pattern,
    score_dst: Tensor,
    score_src: Tensor,
    slope: float,
    log_weight: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the result of `AttentionWeights` and the mask of positive scores, both $[nnz, k]$."""
    scores = pattern.at_rows(score_dst).add_(pattern.at_cols(score_src))
    positive = scores > 0
    scores = F.leaky_relu_(scores, slope)
    if log_weight is not None:
        scores.add_(log_weight.unsqueeze(1))
    weights = scores.sub_(pattern.at_rows(pattern.max_rows(scores))).exp_()
    return weights.div_(pattern.at_rows(pattern.sum_rows(weights))), positive


def _unweigh(
    pattern: Pattern, weights: Tensor, positive: Tensor, grad: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the scores, $[n_{dst}, k]$ and $[n_{src}, k]$, given those of the
    weights.
    """
    grad = grad * weights
    grad = grad.addcmul_(weights, pattern.at_rows(pattern.sum_rows(grad)), value=-1)
    grad = torch.where(positive, grad, slope * grad)
    return pattern.sum_rows(grad), pattern.sum_cols(grad)

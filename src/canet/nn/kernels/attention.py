"""Fused attention of K branches: scores, softmax and weighted sum in one pass over neighbours.

The backward pass recomputes the attention weights from one number per node and branch. The only
values stored per edge are the gradients of its scores, one per branch. The forward pass iterates
over the rows of the pattern (destinations), the backward pass over the rows of its transpose
(sources). There are no atomics, so the same input gives the same bits. Long rows are cut into
segments, whose partial results are merged at the end, to balance the load.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from canet.nn.kernels.launch import launch
from canet.nn.kernels.product import merge, multiply
from canet.nn.sparse_matrix import Pattern

TILE, BACKWARD_TILE = 2048, 512  # entries of a neighbours × branches × H tile, forward and backward
MEANS = 16  # rows of a tile in `_mean_gradient`


class FusedAttention(torch.autograd.Function):
    r"""Attention of K branches over the same states,

    .. math:: \sum_v w_{uv}^{(k)} z_v, \qquad
              w_{uv}^{(k)} = \mathrm{softmax}_v\,\mathrm{LeakyReLU}(a_{uk} + b_{vk}),

    and the states of the destinations, so that z has one gradient.

    Shapes:
        - z $[n_{src}, H]$, scores a $[n_{dst}, K]$, b $[n_{src}, K]$
          → $[n_{dst}, K, H]$, $[n_{dst}, H]$
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, score_dst: Tensor, score_src: Tensor, pattern: Pattern, slope: float
    ) -> tuple[Tensor, Tensor]:
        z, score_dst, score_src = z.contiguous(), score_dst.contiguous(), score_src.contiguous()
        (rows, branches), width = score_dst.shape, z.shape[1]
        out, log_total = z.new_empty(rows, branches, width), torch.empty_like(score_dst)
        tile, cut = _tile(branches, width), pattern.segments
        part = z.new_empty(cut.num_slots, branches, width + 2)
        groups = triton.cdiv(branches, tile["BLOCK_K"])
        launch(_forward, (cut.row.numel(), groups))(
            z, score_dst, score_src, pattern.col, cut.row, cut.begin, cut.end, cut.slot,
            out, log_total, part, branches, width, slope, **tile,
        )  # fmt: skip
        if cut.num_slots:
            launch(_merge_forward, (cut.long_row.numel(), groups))(
                part, cut.long_row, cut.first_slot, out, log_total, branches, width, **tile
            )
        ctx.save_for_backward(z, score_dst, score_src, log_total, out)
        ctx.pattern, ctx.slope = pattern, slope
        ctx.set_materialize_grads(False)
        return out, z[:rows]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Tensor, grad_own: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        z, score_dst, score_src, log_total, out = ctx.saved_tensors
        grad, pattern = grad.contiguous(), ctx.pattern
        branches, width = score_dst.shape[1], z.shape[1]
        grad_z, grad_src = torch.empty_like(z), torch.empty_like(score_src)
        mean_grad = torch.empty_like(score_dst)
        tile = _tile(branches, width, BACKWARD_TILE)
        launch(_mean_gradient, (triton.cdiv(mean_grad.numel(), MEANS),))(
            grad, out, mean_grad, mean_grad.numel(), width, BLOCK_M=MEANS, BLOCK_H=tile["BLOCK_H"]
        )
        read_by, entry = pattern.transposed
        cut = read_by.segments
        grad_edges = z.new_empty(pattern.nnz, branches)
        part_z, part_src = (z.new_empty(cut.num_slots, h) for h in (width, branches))
        base = z[:0] if grad_own is None else grad_own.contiguous()
        launch(_backward, (cut.row.numel(),))(
            z, score_dst, score_src, log_total, mean_grad, read_by.col, entry,
            cut.row, cut.begin, cut.end, cut.slot, grad, base, grad_edges, grad_src, grad_z,
            part_src, part_z, branches, width, base.numel(), ctx.slope, **tile,
        )  # fmt: skip
        merge(cut, part_z, base, grad_z)
        merge(cut, part_src, z[:0], grad_src)
        return grad_z, multiply(pattern, None, grad_edges), grad_src, None, None


def _tile(branches: int, width: int, size: int = TILE) -> dict[str, int]:
    """Tile sizes of a program: all of H, up to four branches, and as many neighbours as fit."""
    block_h = triton.next_power_of_2(width)
    block_k = min(4, triton.next_power_of_2(branches))
    block_n = max(2, min(8, size // (block_h * block_k)))
    return {"BLOCK_N": block_n, "BLOCK_K": block_k, "BLOCK_H": block_h, "num_warps": 1}


@triton.jit
def _score(own, other, slope):
    """LeakyReLU of a + b, and its derivative."""
    raw = own + other
    rise = tl.where(raw > 0, 1.0, slope)
    return raw * rise, rise


@triton.jit
def _forward(
    z, score_dst, score_src, col, rows, begins, ends, slots, out, log_total, part,
    branches, width, slope,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Process one segment of a destination's neighbours; store the result, or a part of it."""
    segment = tl.program_id(0)
    u = tl.load(rows + segment).to(tl.int64)
    slot = tl.load(slots + segment).to(tl.int64)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    h = tl.arange(0, BLOCK_H)
    in_k, in_h = k < branches, h < width
    begin, end = tl.load(begins + segment), tl.load(ends + segment)
    own = tl.load(score_dst + u * branches + k, mask=in_k, other=0.0)
    top = tl.full([BLOCK_K], float("-inf"), own.dtype)
    total = tl.zeros([BLOCK_K], own.dtype)
    summed = tl.zeros([BLOCK_K, BLOCK_H], own.dtype)
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        in_n = n < end
        v = tl.load(col + n, mask=in_n, other=0).to(tl.int64)
        scores_at = score_src + v[:, None] * branches + k[None, :]
        other = tl.load(scores_at, mask=in_n[:, None] & in_k[None, :], other=0.0)
        score, _ = _score(own[None, :], other, slope)
        score = tl.where(in_n[:, None], score, float("-inf"))
        states_at = z + v[:, None] * width + h[None, :]
        states = tl.load(states_at, mask=in_n[:, None] & in_h[None, :], other=0.0)
        higher = tl.maximum(top, tl.max(score, axis=0))
        shrink = tl.exp(top - higher)
        weight = tl.exp(score - higher[None, :])
        total = total * shrink + tl.sum(weight, axis=0)
        products = tl.sum(weight[:, :, None] * states[:, None, :], axis=0)
        summed = summed * shrink[:, None] + products
        top = higher
    inside = in_k[:, None] & in_h[None, :]
    if slot < 0:
        total = tl.where(total > 0, total, 1.0)
        out_at = out + (u * branches + k[:, None]) * width + h[None, :]
        tl.store(out_at, summed / total[:, None], mask=inside)
        tl.store(log_total + u * branches + k, top + tl.log(total), mask=in_k)
    else:
        part_at = part + (slot * branches + k) * (width + 2)
        tl.store(part_at[:, None] + h[None, :], summed, mask=inside)
        tl.store(part_at + width, top, mask=in_k)
        tl.store(part_at + width + 1, total, mask=in_k)


@triton.jit
def _merge_forward(
    part, long_row, first_slot, out, log_total, branches, width,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    u = tl.load(long_row + row).to(tl.int64)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    h = tl.arange(0, BLOCK_H)
    in_k, in_h = k < branches, h < width
    inside = in_k[:, None] & in_h[None, :]
    top = tl.full([BLOCK_K], float("-inf"), part.dtype.element_ty)
    total = tl.zeros([BLOCK_K], part.dtype.element_ty)
    summed = tl.zeros([BLOCK_K, BLOCK_H], part.dtype.element_ty)
    begin, end = tl.load(first_slot + row), tl.load(first_slot + row + 1)
    for slot in range(begin, end):
        part_at = part + (slot * branches + k).to(tl.int64) * (width + 2)
        its_top = tl.load(part_at + width, mask=in_k, other=0.0)
        higher = tl.maximum(top, its_top)
        shrink, its_shrink = tl.exp(top - higher), tl.exp(its_top - higher)
        its_sum = tl.load(part_at[:, None] + h[None, :], mask=inside, other=0.0)
        its_total = tl.load(part_at + width + 1, mask=in_k, other=1.0)
        total = total * shrink + its_total * its_shrink
        summed = summed * shrink[:, None] + its_sum * its_shrink[:, None]
        top = higher
    if begin < end:
        out_at = out + (u * branches + k[:, None]) * width + h[None, :]
        tl.store(out_at, summed / total[:, None], mask=inside)
        tl.store(log_total + u * branches + k, top + tl.log(total), mask=in_k)


@triton.jit
def _mean_gradient(grad, out, mean_grad, rows, width, BLOCK_M: tl.constexpr, BLOCK_H: tl.constexpr):
    """Weighted mean of the gradients of a destination's weights: grad · out, for each branch."""
    m, h = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_H)
    in_m = m < rows
    at = m[:, None].to(tl.int64) * width + h[None, :]
    inside = in_m[:, None] & (h < width)[None, :]
    grad_out = tl.load(grad + at, mask=inside, other=0.0)
    mean = tl.sum(grad_out * tl.load(out + at, mask=inside, other=0.0), axis=1)
    tl.store(mean_grad + m, mean, mask=in_m)


@triton.jit
def _backward(
    z, score_dst, score_src, log_total, mean_grad, col, entries, rows, begins, ends, slots,
    grad, base, grad_edges, grad_src, grad_z, part_src, part_z, branches, width, base_size, slope,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Gradients of a source node's state and scores, and of the scores of its edges."""
    segment = tl.program_id(0)
    v = tl.load(rows + segment).to(tl.int64)
    slot = tl.load(slots + segment).to(tl.int64)
    h = tl.arange(0, BLOCK_H)
    in_h = h < width
    begin, end = tl.load(begins + segment), tl.load(ends + segment)
    state = tl.load(z + v * width + h, mask=in_h, other=0.0)
    summed = tl.zeros([BLOCK_H], state.dtype)
    states_at, scores_at = grad_z + v * width, grad_src + v * branches
    if slot < 0:
        at = v * width + h
        summed += tl.load(base + at, mask=in_h & (at < base_size), other=0.0)
    else:
        states_at, scores_at = part_z + slot * width, part_src + slot * branches
    for first in range(0, branches, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        in_k = k < branches
        own = tl.load(score_src + v * branches + k, mask=in_k, other=0.0)
        grad_scores = tl.zeros([BLOCK_K], state.dtype)
        for start in range(begin, end, BLOCK_N):
            n = start + tl.arange(0, BLOCK_N)
            in_n = n < end
            u = tl.load(col + n, mask=in_n, other=0).to(tl.int64)
            inside = in_n[:, None] & in_k[None, :]
            at = u[:, None] * branches + k[None, :]
            other = tl.load(score_dst + at, mask=inside, other=0.0)
            log_sum = tl.load(log_total + at, mask=inside, other=0.0)
            mean = tl.load(mean_grad + at, mask=inside, other=0.0)
            score, rise = _score(own[None, :], other, slope)
            weight = tl.where(inside, tl.exp(score - log_sum), 0.0)
            grad_at = grad + at[:, :, None] * width + h[None, None, :]
            grad_out = tl.load(grad_at, mask=inside[:, :, None] & in_h[None, None, :], other=0.0)
            grad_weight = tl.sum(grad_out * state[None, None, :], axis=2)
            grad_edge = weight * (grad_weight - mean) * rise
            grad_scores += tl.sum(grad_edge, axis=0)
            entry = tl.load(entries + n, mask=in_n, other=0).to(tl.int64)
            edge_at = grad_edges + entry[:, None] * branches + k[None, :]
            tl.store(edge_at, grad_edge, mask=inside)
            summed += tl.sum(tl.sum(weight[:, :, None] * grad_out, axis=1), axis=0)
        tl.store(scores_at + k, grad_scores, mask=in_k)
    tl.store(states_at + h, summed, mask=in_h)

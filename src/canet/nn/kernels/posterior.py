"""Fused environment estimator: linear map, posterior and sample in one kernel, gradients in one.

Products are as exact as those of the fused layer, and sums over nodes are in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from canet.nn.kernels.shared import PROGRAMS, exact_products, sum_parts, tile_side

FEW_NODES = 2**15  # up to which tiles are small, so that all multiprocessors have some


class FusedPosterior(torch.autograd.Function):
    r"""$\log\pi = \log\mathrm{softmax}(W x + b)$, $e = \mathrm{softmax}((\log\pi + g) / \tau)$.

    The Gumbel noise is $g = -\log r$ for exponential numbers r; without them $e = \pi$.

    Shapes:
        - x $[n, I]$, or two tensors that W reads side by side, weight W $[K, I]$,
          bias b $[K]$ or None, draws r $[n, K]$ or None → $[n, K]$, $[n, K]$
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        beside: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        draws: Tensor | None,
        tau: float,
    ) -> tuple[Tensor, Tensor]:
        x, weight = x.contiguous(), weight.contiguous()
        beside = None if beside is None else beside.contiguous()
        rows, branches = x.shape[0], weight.shape[0]
        log_posterior = x.new_empty(rows, branches)
        sample = torch.empty_like(log_posterior)
        choices = _choices(x, beside, weight)
        _forward[(triton.cdiv(rows, choices["BLOCK_M"]),)](
            x, beside, weight, bias, draws, log_posterior, sample, *_sizes(x, weight), 1 / tau,
            BIASED=bias is not None, SAMPLED=draws is not None, **choices,
        )  # fmt: skip
        ctx.save_for_backward(x, beside, weight, log_posterior, sample)
        ctx.scale = 1.0 if draws is None else 1 / tau
        return log_posterior, sample

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_posterior: Tensor, of_sample: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None, None, None]:
        x, beside, weight, log_posterior, sample = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_beside = None if beside is None else torch.empty_like(beside)
        choices = _choices(x, beside, weight)
        programs = max(1, min(triton.cdiv(x.shape[0], choices["BLOCK_M"]), PROGRAMS))
        part = x.new_empty(programs, weight.numel() + weight.shape[0])
        _backward[(programs,)](
            x, beside, weight, log_posterior, sample,
            of_posterior.contiguous(), of_sample.contiguous(), grad_x, grad_beside, part,
            *_sizes(x, weight), ctx.scale, **choices,
        )  # fmt: skip
        of_weight, of_bias = sum_parts(part).split([weight.numel(), weight.shape[0]])
        of_bias = of_bias if ctx.needs_input_grad[3] else None
        return grad_x, grad_beside, of_weight.view_as(weight), of_bias, None, None


def _sizes(x: Tensor, weight: Tensor) -> tuple[int, int, int, int]:
    """Nodes, branches, width of x and of all that W reads."""
    return x.shape[0], weight.shape[0], x.shape[1], weight.shape[1]


def _choices(x: Tensor, beside: Tensor | None, weight: Tensor) -> dict[str, Any]:
    """What kernels are compiled for."""
    return {
        "TWO": beside is not None,
        "DOT": "tf32x3" if exact_products() else "tf32",
        "BLOCK_M": 16 if x.shape[0] <= FEW_NODES else 32,
        "BLOCK_I": tile_side(x.shape[1]),
        "BLOCK_K": tile_side(weight.shape[0]),
    }


@triton.jit
def _softmax(x):
    """Softmax of the rows; columns that are not there have -inf."""
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    return x / tl.sum(x, axis=1)[:, None]


@triton.jit
def _forward(
    x, beside, weight, bias, draws, log_posterior, sample,
    rows, branches, width, weight_width, scale,
    BIASED: tl.constexpr, SAMPLED: tl.constexpr, TWO: tl.constexpr, DOT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    i, k = tl.arange(0, BLOCK_I), tl.arange(0, BLOCK_K)
    in_m, in_i, in_k = m < rows, i < width, k < branches
    x_at, x_inside = m[:, None] * width + i[None, :], in_m[:, None] & in_i[None, :]
    maps_at, maps_inside = k[None, :] * weight_width + i[:, None], in_k[None, :] & in_i[:, None]
    inputs = tl.load(x + x_at, mask=x_inside, other=0.0)
    maps = tl.load(weight + maps_at, mask=maps_inside, other=0.0)
    logits = tl.dot(inputs, maps, input_precision=DOT)
    if TWO:
        inputs = tl.load(beside + x_at, mask=x_inside, other=0.0)
        maps = tl.load(weight + width + maps_at, mask=maps_inside, other=0.0)
        logits = tl.dot(inputs, maps, logits, input_precision=DOT)
    if BIASED:
        logits += tl.load(bias + k, mask=in_k, other=0.0)[None, :]
    logits = tl.where(in_k[None, :], logits, float("-inf"))
    logits -= tl.max(logits, axis=1)[:, None]
    log_pi = logits - tl.log(tl.sum(tl.exp(logits), axis=1))[:, None]
    at, inside = m[:, None] * branches + k[None, :], in_m[:, None] & in_k[None, :]
    tl.store(log_posterior + at, log_pi, mask=inside)
    if SAMPLED:
        noisy = (log_pi - tl.log(tl.load(draws + at, mask=inside, other=1.0))) * scale
        tl.store(sample + at, _softmax(noisy), mask=inside)
    else:
        tl.store(sample + at, tl.exp(log_pi), mask=inside)


@triton.jit
def _backward(
    x, beside, weight, log_posterior, sample, of_posterior, of_sample, grad_x, grad_beside, part,
    rows, branches, width, weight_width, scale,
    TWO: tl.constexpr, DOT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Gradient of the inputs and, over the nodes of a program, of the weight and the bias."""
    i, k = tl.arange(0, BLOCK_I), tl.arange(0, BLOCK_K)
    in_i, in_k = i < width, k < branches
    maps_at, maps_inside = k[:, None] * weight_width + i[None, :], in_k[:, None] & in_i[None, :]
    maps = tl.load(weight + maps_at, mask=maps_inside, other=0.0)
    of_maps = tl.zeros([BLOCK_K, BLOCK_I], tl.float32)
    of_bias = tl.zeros([BLOCK_K], tl.float32)
    if TWO:
        maps_beside = tl.load(weight + width + maps_at, mask=maps_inside, other=0.0)
        of_maps_beside = tl.zeros([BLOCK_K, BLOCK_I], tl.float32)
    for first in range(tl.program_id(0) * BLOCK_M, rows, tl.num_programs(0) * BLOCK_M):
        m = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
        in_m = m < rows
        at, inside = m[:, None] * branches + k[None, :], in_m[:, None] & in_k[None, :]
        e = tl.load(sample + at, mask=inside, other=0.0)
        of_e = tl.load(of_sample + at, mask=inside, other=0.0)
        of_log_pi = e * (of_e - tl.sum(e * of_e, axis=1)[:, None]) * scale
        of_log_pi += tl.load(of_posterior + at, mask=inside, other=0.0)
        pi = tl.exp(tl.load(log_posterior + at, mask=inside, other=float("-inf")))
        of_logits = of_log_pi - pi * tl.sum(of_log_pi, axis=1)[:, None]
        turned = tl.trans(of_logits)
        of_bias += tl.sum(of_logits, axis=0)
        x_at, x_inside = m[:, None] * width + i[None, :], in_m[:, None] & in_i[None, :]
        of_x = tl.dot(of_logits, maps, input_precision=DOT)
        tl.store(grad_x + x_at, of_x, mask=x_inside)
        inputs = tl.load(x + x_at, mask=x_inside, other=0.0)
        of_maps += tl.dot(turned, inputs, input_precision=DOT)
        if TWO:
            of_x = tl.dot(of_logits, maps_beside, input_precision=DOT)
            tl.store(grad_beside + x_at, of_x, mask=x_inside)
            inputs = tl.load(beside + x_at, mask=x_inside, other=0.0)
            of_maps_beside += tl.dot(turned, inputs, input_precision=DOT)
    part += tl.program_id(0).to(tl.int64) * branches * (weight_width + 1)
    tl.store(part + maps_at, of_maps, mask=maps_inside)
    if TWO:
        tl.store(part + width + maps_at, of_maps_beside, mask=maps_inside)
    tl.store(part + branches * weight_width + k, of_bias, mask=in_k)

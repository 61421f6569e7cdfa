"""Fused environment estimator: one kernel for linear map, posterior, sample and expected log
posterior, and one for their gradients.

Products have the precision of the fused layer, and sums over nodes have a fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from canet.nn.kernels.launch import launch
from canet.nn.kernels.shared import MULTIPROCESSORS, exact_products, sum_parts, tile_side

FEW_NODES = 2**13  # up to here tiles are small, so that all multiprocessors have work


class FusedPosterior(torch.autograd.Function):
    r"""As `canet.nn.operations.infer`, with $\sum_k e_k \log\pi_k$ $[n]$ as the third result."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        own: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        draws: Tensor | None,
        tau: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = x.contiguous(), weight.contiguous()
        own = None if own is None else own.contiguous()
        (rows, _), branches = x.shape, weight.shape[0]
        results = x.new_empty(rows, branches), x.new_empty(rows, branches), x.new_empty(rows)
        choices = _choices(x, own, weight, 32 if x.shape[0] <= FEW_NODES else 64)
        launch(_forward, (triton.cdiv(x.shape[0], choices["BLOCK_M"]),))(
            x, own, weight, bias, draws, *results, *_sizes(x, weight), 1 / tau,
            BIASED=bias is not None, SAMPLED=draws is not None, **choices,
        )  # fmt: skip
        ctx.save_for_backward(x, own, weight, *results[:2])
        ctx.scale = 1.0 if draws is None else 1 / tau
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, *grads: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None, None, None]:
        x, own, weight, log_posterior, sample = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_own = None if own is None else torch.empty_like(own)
        choices = _choices(x, own, weight, 16) | {"num_warps": 8}
        tiles = triton.cdiv(x.shape[0], choices["BLOCK_M"])
        programs = max(1, min(tiles, 2 * MULTIPROCESSORS))
        part = x.new_empty(programs, weight.numel() + weight.shape[0])
        arguments, flags = _gradient_arguments(grads)
        launch(_backward, (programs,))(
            x, own, weight, log_posterior, sample, *arguments, grad_x, grad_own, part,
            *_sizes(x, weight), ctx.scale, **flags, **choices,
        )  # fmt: skip
        grad_weight, grad_bias = sum_parts(part).split([weight.numel(), weight.shape[0]])
        grad_bias = grad_bias if ctx.needs_input_grad[3] else None
        return grad_x, grad_own, grad_weight.view_as(weight), grad_bias, None, None


def _gradient_arguments(grads: tuple[Tensor | None, ...]) -> tuple[list[Any], dict[str, bool]]:
    """Return the gradients as kernel arguments, and flags for those that are not None.

    The gradient of the expected log is often the same number for all nodes (stride 0), so its
    stride is passed, too.
    """
    grad_posterior, grad_sample, grad_expected = grads
    arguments: list[Any] = [
        None if g is None else g.contiguous() for g in (grad_posterior, grad_sample)
    ]
    arguments += [grad_expected, 0 if grad_expected is None else grad_expected.stride(0)]
    flags = zip(("GRAD_POSTERIOR", "GRAD_SAMPLE", "GRAD_EXPECTED"), grads, strict=True)
    return arguments, {name: grad is not None for name, grad in flags}


def _sizes(x: Tensor, weight: Tensor) -> tuple[int, int, int, int]:
    """Numbers of nodes and branches, width of x and width of W."""
    return x.shape[0], weight.shape[0], x.shape[1], weight.shape[1]


def _choices(x: Tensor, own: Tensor | None, weight: Tensor, nodes: int) -> dict[str, Any]:
    """Compile-time arguments of the kernels."""
    return {
        "TWO": own is not None,
        "DOT": "tf32x3" if exact_products() else "tf32",
        "BLOCK_M": nodes,
        "BLOCK_I": tile_side(x.shape[1]),
        "BLOCK_K": tile_side(weight.shape[0]),
    }


@triton.jit
def _softmax(x):
    """Softmax of each row; padding columns contain -inf."""
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    return x / tl.sum(x, axis=1)[:, None]


@triton.jit
def _infer(
    logits, draws, log_posterior, sample, expected_log, m, in_m, k, in_k, branches, scale,
    SAMPLED: tl.constexpr,
):  # fmt: skip
    """Compute and store log posterior, sample and expected log of a tile of nodes."""
    logits = tl.where(in_k[None, :], logits, float("-inf"))
    logits -= tl.max(logits, axis=1)[:, None]
    log_pi = logits - tl.log(tl.sum(tl.exp(logits), axis=1))[:, None]
    at, inside = m[:, None] * branches + k[None, :], in_m[:, None] & in_k[None, :]
    if SAMPLED:
        e = _softmax((log_pi - tl.log(tl.load(draws + at, mask=inside, other=1.0))) * scale)
    else:
        e = tl.exp(log_pi)
    tl.store(log_posterior + at, log_pi, mask=inside)
    tl.store(sample + at, e, mask=inside)
    expected = tl.sum(e * tl.where(in_k[None, :], log_pi, 0.0), axis=1)
    tl.store(expected_log + m, expected, mask=in_m)


@triton.jit
def _logits_gradient(
    log_posterior, sample, grad_posterior, grad_sample, grad_expected, expected_stride,
    m, in_m, k, in_k, branches, scale,
    GRAD_POSTERIOR: tl.constexpr, GRAD_SAMPLE: tl.constexpr, GRAD_EXPECTED: tl.constexpr,
):  # fmt: skip
    """Gradient of the logits of a tile of nodes."""
    at, inside = m[:, None] * branches + k[None, :], in_m[:, None] & in_k[None, :]
    e = tl.load(sample + at, mask=inside, other=0.0)
    log_pi = tl.load(log_posterior + at, mask=inside, other=0.0)
    grad_e, grad_log_pi = tl.zeros_like(e), tl.zeros_like(e)
    if GRAD_SAMPLE:
        grad_e += tl.load(grad_sample + at, mask=inside, other=0.0)
    if GRAD_POSTERIOR:
        grad_log_pi += tl.load(grad_posterior + at, mask=inside, other=0.0)
    if GRAD_EXPECTED:
        expected = tl.load(grad_expected + m * expected_stride, mask=in_m, other=0.0)[:, None]
        grad_e += expected * log_pi
        grad_log_pi += expected * e
    grad_log_pi += e * (grad_e - tl.sum(e * grad_e, axis=1)[:, None]) * scale
    pi = tl.where(inside, tl.exp(log_pi), 0.0)
    return grad_log_pi - pi * tl.sum(grad_log_pi, axis=1)[:, None]


@triton.jit
def _forward(
    x, own, weight, bias, draws, log_posterior, sample, expected_log,
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
        inputs = tl.load(own + x_at, mask=x_inside, other=0.0)
        maps = tl.load(weight + width + maps_at, mask=maps_inside, other=0.0)
        logits = tl.dot(inputs, maps, logits, input_precision=DOT)
    if BIASED:
        logits += tl.load(bias + k, mask=in_k, other=0.0)[None, :]
    _infer(
        logits, draws, log_posterior, sample, expected_log, m, in_m, k, in_k, branches, scale,
        SAMPLED,
    )  # fmt: skip


@triton.jit
def _backward(
    x, own, weight, log_posterior, sample, grad_posterior, grad_sample, grad_expected,
    expected_stride, grad_x, grad_own, part, rows, branches, width, weight_width, scale,
    GRAD_POSTERIOR: tl.constexpr, GRAD_SAMPLE: tl.constexpr, GRAD_EXPECTED: tl.constexpr,
    TWO: tl.constexpr, DOT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Gradients of the inputs, and of weight and bias, summed over the nodes of a program."""
    i, k = tl.arange(0, BLOCK_I), tl.arange(0, BLOCK_K)
    in_i, in_k = i < width, k < branches
    maps_at, maps_inside = k[:, None] * weight_width + i[None, :], in_k[:, None] & in_i[None, :]
    maps = tl.load(weight + maps_at, mask=maps_inside, other=0.0)
    grad_maps = tl.zeros([BLOCK_K, BLOCK_I], tl.float32)
    grad_bias = tl.zeros([BLOCK_K], tl.float32)
    if TWO:
        maps_own = tl.load(weight + width + maps_at, mask=maps_inside, other=0.0)
        grad_maps_own = tl.zeros([BLOCK_K, BLOCK_I], tl.float32)
    for first in range(tl.program_id(0) * BLOCK_M, rows, tl.num_programs(0) * BLOCK_M):
        m = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
        in_m = m < rows
        grad_logits = _logits_gradient(
            log_posterior, sample, grad_posterior, grad_sample, grad_expected, expected_stride,
            m, in_m, k, in_k, branches, scale, GRAD_POSTERIOR, GRAD_SAMPLE, GRAD_EXPECTED,
        )  # fmt: skip
        turned = tl.trans(grad_logits)
        grad_bias += tl.sum(grad_logits, axis=0)
        x_at, x_inside = m[:, None] * width + i[None, :], in_m[:, None] & in_i[None, :]
        grad_inputs = tl.dot(grad_logits, maps, input_precision=DOT)
        tl.store(grad_x + x_at, grad_inputs, mask=x_inside)
        inputs = tl.load(x + x_at, mask=x_inside, other=0.0)
        grad_maps += tl.dot(turned, inputs, input_precision=DOT)
        if TWO:
            grad_inputs = tl.dot(grad_logits, maps_own, input_precision=DOT)
            tl.store(grad_own + x_at, grad_inputs, mask=x_inside)
            inputs = tl.load(own + x_at, mask=x_inside, other=0.0)
            grad_maps_own += tl.dot(turned, inputs, input_precision=DOT)
    part += tl.program_id(0).to(tl.int64) * branches * (weight_width + 1)
    tl.store(part + maps_at, grad_maps, mask=maps_inside)
    if TWO:
        tl.store(part + width + maps_at, grad_maps_own, mask=maps_inside)
    tl.store(part + branches * weight_width + k, grad_bias, mask=in_k)

"""Fused layer of K branches, without a nodes × branches × H tensor in the forward or backward pass.

An fp32 product is computed on tensor cores as three products of fp16 numbers. The values of a node
are scaled by a power of two and split into sums of two fp16 numbers each. The error is that of fp32
rounding, or 2⁻⁴⁰ of the largest value if that is larger. With
`torch.set_float32_matmul_precision("high")`, a single product with 11 bits is used, as in TF32.
Sums over nodes have a fixed order, so the same input gives the same bits.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from canet.nn.kernels.launch import launch
from canet.nn.kernels.shared import MULTIPROCESSORS, exact_products, sum_parts, tile_side

BLOCK_M = 64  # nodes of a tile; the smallest number at which tensor cores reach full speed
NARROW = 64  # width up to which a multiprocessor has enough memory to prefetch the next tiles


class FusedMixture(torch.autograd.Function):
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} x_u^{(k)} + z_u)$, or with $[x_u \| z_u]$.

    Shapes:
        - x $[n, K, I]$ and weight $[K, I, O]$, or x $[n, I]$, shared by all branches, and weight
          $[K, I + O, O]$ for x and z; e $[n, K]$, z $[n, O]$ → $[n, O]$
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
        x, weight, e, z = x.contiguous(), weight.contiguous(), e.contiguous(), z.contiguous()
        branches, numel = weight.shape[0], weight[0].numel()
        halves = weight.new_empty(2, *weight.shape, dtype=torch.float16)
        unscale = weight.new_empty(branches)
        launch(_split_weights, (branches,))(
            weight, halves, unscale, branches, numel,
            BLOCK=triton.next_power_of_2(numel), num_warps=8,
        )  # fmt: skip
        out = torch.empty_like(z)
        launch(_forward, (triton.cdiv(x.shape[0], BLOCK_M),))(
            x, halves, unscale, e, z, out, *_sizes(x, weight), **_choices(x, weight)
        )
        ctx.save_for_backward(x, halves, unscale, e, z, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, halves, unscale, e, z, out = ctx.saved_tensors
        weight = halves[0]
        choices, branches = _choices(x, weight), e.shape[1]
        grad_x, grad_e, grad_z = (torch.empty_like(tensor) for tensor in (x, e, z))
        grad_sum = torch.empty_like(z) if choices["SHARED"] else grad_z
        shared = _room_for_shared(x, z, **choices)
        launch(_backward, (triton.cdiv(x.shape[0], BLOCK_M),))(
            x, halves, unscale, e, z, out, grad.contiguous(), grad_x, grad_e, grad_z, grad_sum,
            *shared,
            *_sizes(x, weight), BLOCK_K=triton.next_power_of_2(branches), **choices
        )  # fmt: skip
        programs, summing = _summing(x, weight)
        tiles = triton.cdiv(x.shape[0], summing["BLOCK_M"])
        splits = max(1, min(tiles, programs // branches))
        part = x.new_empty(splits, *weight.shape)
        launch(_backward_weight, (branches, splits))(
            x, e, grad_sum, *shared, part, triton.cdiv(tiles, splits) * summing["BLOCK_M"],
            *_sizes(x, weight), **choices | summing,
        )  # fmt: skip
        return grad_x, sum_parts(part), grad_e, grad_z


def _room_for_shared(x: Tensor, z: Tensor, SHARED: bool, **_: object) -> tuple[Tensor, ...]:
    """Allocate the fp16 parts of x and z, if all branches share them, and the inverse scales."""
    nodes = x.shape[0] if SHARED else 0
    x, z = x[:nodes], z[:nodes]
    halves = (torch.empty_like(tensor, dtype=torch.float16) for tensor in (x, x, z, z))
    return *halves, x.new_empty(nodes)


def _sizes(x: Tensor, weight: Tensor) -> tuple[int, int, int, int]:
    """Nodes, branches, I and O."""
    return x.shape[0], weight.shape[0], x.shape[-1], weight.shape[2]


def _choices(x: Tensor, weight: Tensor) -> dict[str, Any]:
    """Compile-time arguments of the kernels."""
    return {
        "SHARED": x.dim() == 2,
        "EXACT": exact_products(),
        "BLOCK_M": BLOCK_M,
        "BLOCK_I": tile_side(x.shape[-1]),
        "BLOCK_O": tile_side(weight.shape[2]),
        "num_stages": 3 if _narrow(x, weight) else 1,
    }


def _summing(x: Tensor, weight: Tensor) -> tuple[int, dict[str, int]]:
    """Number of programs that sum over nodes, and their compile-time arguments."""
    if not _narrow(x, weight):
        return 2 * MULTIPROCESSORS, {"BLOCK_M": 64, "num_warps": 8, "num_stages": 1}
    if x.dim() == 2:
        return 3 * MULTIPROCESSORS, {"BLOCK_M": 32, "num_warps": 4, "num_stages": 3}
    return 2 * MULTIPROCESSORS, {"BLOCK_M": 128, "num_warps": 4, "num_stages": 1}


def _narrow(x: Tensor, weight: Tensor) -> bool:
    return max(x.shape[-1], weight.shape[2]) <= NARROW


@triton.jit
def _split(x, top):
    """Two fp16 numbers whose sum is x times a power of two, and the inverse of that factor.

    The factor brings `top`, the largest of the values that share it, to between 2^14 and 2^15.
    """
    exponent = tl.maximum(top.to(tl.int32, bitcast=True) >> 23, 15)  # a smaller one would overflow
    x *= ((268 - exponent) << 23).to(tl.float32, bitcast=True)
    high = x.to(tl.float16)
    low = (x - high.to(tl.float32)).to(tl.float16)
    return high, low, ((exponent - 14) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _split_rows(x):
    """Split x with one factor per row, $[m, 1]$."""
    return _split(x, tl.max(tl.abs(x), axis=1, keep_dims=True))


@triton.jit
def _split_all(x):
    """Split x with a single factor."""
    return _split(x, tl.max(tl.abs(x)))


@triton.jit
def _product(a_high, a_low, b_high, b_low, EXACT: tl.constexpr):
    """a b from their parts. The product of both low parts is below fp32 precision."""
    if not EXACT:
        return tl.dot(a_high, b_high)
    small = tl.dot(a_low, b_high)
    small = tl.dot(a_high, b_low, small)
    return tl.dot(a_high, b_high, small)


@triton.jit
def _split_weights(weight, halves, unscale, branches, numel, BLOCK: tl.constexpr):
    k, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < numel
    high, low, undo = _split_all(tl.load(weight + k * numel + at, mask=inside, other=0.0))
    tl.store(halves + k * numel + at, high, mask=inside)
    tl.store(halves + (branches + k) * numel + at, low, mask=inside)
    tl.store(unscale + k, undo)


@triton.jit
def _forward(
    x, halves, unscale, e, z, out, rows, branches, width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    o = tl.arange(0, BLOCK_O)
    in_m, in_o = m < rows, o < out_width
    weight_width = width + out_width if SHARED else width
    total = tl.zeros([BLOCK_M, BLOCK_O], tl.float32)
    total = _mixed(
        total, x, halves, unscale, e, m, in_m, o, in_o,
        branches, width, weight_width, out_width, SHARED, EXACT, BLOCK_I,
    )  # fmt: skip
    if SHARED:
        total = _mixed(
            total, z, halves + width * out_width, unscale, e, m, in_m, o, in_o,
            branches, out_width, weight_width, out_width, True, EXACT, BLOCK_O,
        )  # fmt: skip
    at = m[:, None].to(tl.int64) * out_width + o[None, :]
    inside = in_m[:, None] & in_o[None, :]
    total += tl.load(z + at, mask=inside, other=0.0)
    tl.store(out + at, tl.where(total <= 0, 0.0, total), mask=inside)  # NaN stays


@triton.jit
def _mixed(
    total, x, halves, unscale, e, m, in_m, o, in_o, branches, width, weight_width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """Add the mixture of the branches' maps of x to the total; weights start at `halves`."""
    low_at = branches * weight_width * out_width
    row = m.to(tl.int64) * width if SHARED else m.to(tl.int64) * branches * width
    i = tl.arange(0, BLOCK_I)
    in_i = i < width
    x_at, x_inside = x + row[:, None] + i[None, :], in_m[:, None] & in_i[None, :]
    inside = in_i[:, None] & in_o[None, :]
    high, low, undo = _split_rows(tl.load(x_at, mask=x_inside, other=0.0))
    for k in range(branches):
        if not SHARED:
            high, low, undo = _split_rows(tl.load(x_at + k * width, mask=x_inside, other=0.0))
        at = halves + (k * weight_width + i[:, None]) * out_width + o[None, :]
        weight_high = tl.load(at, mask=inside, other=0.0)
        weight_low = tl.load(at + low_at, mask=inside, other=0.0)
        share = tl.load(e + m.to(tl.int64) * branches + k, mask=in_m, other=0.0)
        factor = share[:, None] * undo * tl.load(unscale + k)
        total += factor * _product(high, low, weight_high, weight_low, EXACT)
    return total


@triton.jit
def _backward(
    x, halves, unscale, e, z, out, grad, grad_x, grad_e, grad_z, grad_sum,
    x_high, x_low, z_high, z_low, shared_undo, rows, branches, width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Gradients of x, e, z and the input of ReLU, and the fp16 parts of shared x and z."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    o, k = tl.arange(0, BLOCK_O), tl.arange(0, BLOCK_K)
    in_m, in_o = m < rows, o < out_width
    weight_width = width + out_width if SHARED else width
    at, inside = m[:, None].to(tl.int64) * out_width + o[None, :], in_m[:, None] & in_o[None, :]
    grad_rows = _through_relu(out, grad, at, inside)
    tl.store(grad_sum + at, grad_rows, mask=inside)
    if SHARED:
        i = tl.arange(0, BLOCK_I)
        x_at = m[:, None].to(tl.int64) * width + i[None, :]
        x_inside = in_m[:, None] & (i < width)[None, :]
        inputs = tl.load(x + x_at, mask=x_inside, other=0.0)
        top = tl.max(tl.abs(inputs), axis=1, keep_dims=True)
        own = tl.load(z + at, mask=inside, other=0.0)
        top = tl.maximum(top, tl.max(tl.abs(own), axis=1, keep_dims=True))
        high, low, undo = _split(own, top)
        tl.store(z_high + at, high, mask=inside)
        tl.store(z_low + at, low, mask=inside)
        high, low, undo = _split(inputs, top)
        tl.store(x_high + x_at, high, mask=x_inside)
        tl.store(x_low + x_at, low, mask=x_inside)
        tl.store(shared_undo + m[:, None], undo, mask=in_m[:, None])
    high, low, undo = _split_rows(grad_rows)
    grad_shares = tl.zeros([BLOCK_M, BLOCK_K], tl.float32)
    grad_shares, grad_inputs, x_at, x_inside = _unmixed(
        grad_shares, high, low, undo, x, grad_x, halves, unscale, e, m, in_m, o, in_o,
        branches, width, weight_width, out_width, SHARED, EXACT, BLOCK_I,
    )  # fmt: skip
    if SHARED:
        tl.store(grad_x + x_at, grad_inputs, mask=x_inside)
        grad_shares, grad_states, z_at, z_inside = _unmixed(
            grad_shares, high, low, undo, z, grad_z, halves + width * out_width, unscale, e,
            m, in_m, o, in_o,
            branches, out_width, weight_width, out_width, True, EXACT, BLOCK_O,
        )  # fmt: skip
        # Load again instead of keeping the values in registers.
        grad_states += _through_relu(out, grad, z_at, z_inside)
        tl.store(grad_z + z_at, grad_states, mask=z_inside)
    e_at = m[:, None].to(tl.int64) * branches + k[None, :]
    tl.store(grad_e + e_at, grad_shares * undo, mask=in_m[:, None] & (k < branches)[None, :])


@triton.jit
def _through_relu(out, grad, at, inside):
    """Gradient of the input of ReLU, given that of its output `out`."""
    idle = tl.load(out + at, mask=inside, other=0.0) <= 0
    return tl.where(idle, 0.0, tl.load(grad + at, mask=inside, other=0.0))


@triton.jit
def _unmixed(
    grad_shares, high, low, undo, x, grad_x, halves, unscale, e, m, in_m, o, in_o,
    branches, width, weight_width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """Gradient of x, and its (still scaled) part of that of e; weights start at `halves`."""
    low_at = branches * weight_width * out_width
    i, all_k = tl.arange(0, BLOCK_I), tl.arange(0, grad_shares.shape[1])
    in_i = i < width
    row = m.to(tl.int64) * width if SHARED else m.to(tl.int64) * branches * width
    x_at, x_inside = row[:, None] + i[None, :], in_m[:, None] & in_i[None, :]
    inside = in_i[None, :] & in_o[:, None]
    inputs = tl.load(x + x_at, mask=x_inside, other=0.0)
    grad_inputs = tl.zeros(inputs.shape, tl.float32)
    for k in range(branches):
        at = halves + (k * weight_width + i[None, :]) * out_width + o[:, None]
        weight_high = tl.load(at, mask=inside, other=0.0)
        weight_low = tl.load(at + low_at, mask=inside, other=0.0)
        back = _product(high, low, weight_high, weight_low, EXACT)
        factor = tl.load(unscale + k)
        share = tl.load(e + m.to(tl.int64) * branches + k, mask=in_m, other=0.0) * factor
        if SHARED:
            grad_inputs += share[:, None] * back
        else:
            inputs = tl.load(x + x_at + k * width, mask=x_inside, other=0.0)
            tl.store(grad_x + x_at + k * width, undo * share[:, None] * back, mask=x_inside)
        grad_share = tl.sum(inputs * back, axis=1) * factor
        grad_shares += tl.where(all_k[None, :] == k, grad_share[:, None], 0.0)
    return grad_shares, grad_inputs * undo, x_at, x_inside


@triton.jit
def _backward_weight(
    x, e, grad_sum, x_high, x_low, z_high, z_low, shared_undo, part, rows_of_split,
    rows, branches, width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """Gradient of a branch's weight, summed over some of the nodes.

    Shared parts are scaled by a factor per node; `share` contains its inverse.
    """
    k, split = tl.program_id(0), tl.program_id(1)
    i, o = tl.arange(0, BLOCK_I), tl.arange(0, BLOCK_O)
    in_i, in_o = i < width, o < out_width
    weight_width = width + out_width if SHARED else width
    grad_inputs = tl.zeros([BLOCK_I, BLOCK_O], tl.float32)
    grad_own = tl.zeros([BLOCK_O, BLOCK_O], tl.float32)
    for first in range(split * rows_of_split, (split + 1) * rows_of_split, BLOCK_M):
        m = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
        in_m = m < rows
        share = tl.load(e + m * branches + k, mask=in_m, other=0.0)
        at, inside = m[:, None] * out_width + o[None, :], in_m[:, None] & in_o[None, :]
        grad_rows = tl.load(grad_sum + at, mask=inside, other=0.0)
        x_inside = in_m[:, None] & in_i[None, :]
        if SHARED:
            x_at = m[:, None] * width + i[None, :]
            high = tl.load(x_high + x_at, mask=x_inside, other=0.0)
            low = tl.load(x_low + x_at, mask=x_inside, other=0.0)
            share *= tl.load(shared_undo + m, mask=in_m, other=0.0)
            undo = 1.0
        else:
            x_at = x + (m * branches + k)[:, None] * width + i[None, :]
            high, low, undo = _split_all(tl.load(x_at, mask=x_inside, other=0.0))
        sum_high, sum_low, undo_sum = _split_all(grad_rows * share[:, None])
        product = _product(tl.trans(high), tl.trans(low), sum_high, sum_low, EXACT)
        grad_inputs += product * (undo * undo_sum)
        if SHARED:
            high = tl.load(z_high + at, mask=inside, other=0.0)
            low = tl.load(z_low + at, mask=inside, other=0.0)
            product = _product(tl.trans(high), tl.trans(low), sum_high, sum_low, EXACT)
            grad_own += product * undo_sum
    part += (split * branches + k) * weight_width * out_width
    at, inside = i[:, None] * out_width + o[None, :], in_i[:, None] & in_o[None, :]
    tl.store(part + at, grad_inputs, mask=inside)
    if SHARED:
        at, inside = o[:, None] * out_width + o[None, :], in_o[:, None] & in_o[None, :]
        tl.store(part + width * out_width + at, grad_own, mask=inside)

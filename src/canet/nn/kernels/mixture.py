"""Fused layer of K branches: no nodes × branches × H tensor is written, forward or backward.

A product of fp32 numbers on tensor cores is three of their TF32 parts, which keeps fp32's accuracy;
under `torch.set_float32_matmul_precision("high")` it is one. Sums over nodes are made in a fixed
order, so the same input gives the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from canet.nn.kernels.shared import PROGRAMS, exact_products, sum_parts, tile_side

BLOCK_M = 64  # nodes of a tile, the fewest that tensor cores multiply at full speed
FEW = 32  # inputs that the forward pass multiplies at a time, and nodes that are summed over


class FusedMixture(torch.autograd.Function):
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} x_u^{(k)} + z_u)$, or with $[x_u^{(k)} \| z_u]$.

    Shapes:
        - x $[n, I]$ (the same for all branches) or $[n, K, I]$, weight $[K, I, O]$, or
          $[K, I + O, O]$ where it maps z too, e $[n, K]$, z $[n, O]$ → $[n, O]$
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
        x, weight, e, z = x.contiguous(), weight.contiguous(), e.contiguous(), z.contiguous()
        branches, width, out_width = weight.shape
        by_output = weight.new_empty(2, branches, out_width, width)
        by_input = weight.new_empty(2, branches, width, out_width)
        choices = _choices(x, weight)
        _split_weights[(branches, triton.cdiv(width, FEW))](
            weight, by_output, by_input, branches, width, out_width,
            BLOCK_I=FEW, BLOCK_O=choices["BLOCK_O"],
        )  # fmt: skip
        out = torch.empty_like(z)
        _forward[(triton.cdiv(x.shape[0], BLOCK_M),)](
            x, by_output, e, z, out, *_sizes(x, weight), num_stages=3,
            **choices | {"BLOCK_I": min(FEW, choices["BLOCK_I"])},
        )  # fmt: skip
        ctx.save_for_backward(x, weight, by_input, e, z, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, weight, by_input, e, z, out = ctx.saved_tensors
        choices, branches = _choices(x, weight), e.shape[1]
        grad_x, grad_e, grad_z = (torch.empty_like(tensor) for tensor in (x, e, z))
        grad_sum = torch.empty_like(z) if choices["OWN"] else grad_z
        _backward[(triton.cdiv(x.shape[0], BLOCK_M),)](
            x, by_input, e, z, out, grad.contiguous(), grad_x, grad_e, grad_z, grad_sum,
            *_sizes(x, weight), num_stages=2,
            BLOCK_K=triton.next_power_of_2(branches), **choices,
        )  # fmt: skip
        tiles = triton.cdiv(x.shape[0], FEW)
        splits = max(1, min(tiles, PROGRAMS // branches))
        part = x.new_empty(splits, *weight.shape)
        _backward_weight[(branches, splits)](
            x, e, z, grad_sum, part, triton.cdiv(tiles, splits) * FEW, *_sizes(x, weight),
            num_stages=3, **choices | {"BLOCK_M": FEW},
        )  # fmt: skip
        return grad_x, sum_parts(part), grad_e, grad_z


def _sizes(x: Tensor, weight: Tensor) -> tuple[int, int, int, int]:
    """Nodes, branches, I and O."""
    return x.shape[0], weight.shape[0], x.shape[-1], weight.shape[2]


def _choices(x: Tensor, weight: Tensor) -> dict[str, Any]:
    """What kernels are compiled for."""
    return {
        "SHARED": x.dim() == 2,
        "OWN": weight.shape[1] > x.shape[-1],
        "EXACT": exact_products(),
        "BLOCK_M": BLOCK_M,
        "BLOCK_I": tile_side(x.shape[-1]),
        "BLOCK_O": tile_side(weight.shape[2]),
    }


@triton.jit
def _split(x):
    """The TF32 part of fp32 numbers, and the rest."""
    high = (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def _product(a_high, a_low, b_high, b_low, EXACT: tl.constexpr):
    """a b from their parts; the product of the low ones is below fp32's precision."""
    if not EXACT:
        return tl.dot(a_high, b_high, input_precision="tf32")
    small = tl.dot(a_low, b_high, input_precision="tf32")
    small = tl.dot(a_high, b_low, small, input_precision="tf32")
    return tl.dot(a_high, b_high, small, input_precision="tf32")


@triton.jit
def _split_weights(
    weight, by_output, by_input, branches, width, out_width,
    BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """Both parts of $[K, I, O]$, and of $[K, O, I]$.

    Tensor cores want the numbers that they sum over side by side: inputs forward, outputs backward.
    """
    k, numel = tl.program_id(0), branches * width * out_width
    i = tl.program_id(1) * BLOCK_I + tl.arange(0, BLOCK_I)[:, None]
    o = tl.arange(0, BLOCK_O)[None, :]
    inside = (i < width) & (o < out_width)
    at = (k * width + i) * out_width + o
    high, low = _split(tl.load(weight + at, mask=inside, other=0.0))
    tl.store(by_input + at, high, mask=inside)
    tl.store(by_input + numel + at, low, mask=inside)
    at = (k * out_width + o) * width + i
    tl.store(by_output + at, high, mask=inside)
    tl.store(by_output + numel + at, low, mask=inside)


@triton.jit
def _forward(
    x, by_output, e, z, out, rows, branches, width, out_width,
    SHARED: tl.constexpr, OWN: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    o = tl.arange(0, BLOCK_O)
    in_m, in_o = m < rows, o < out_width
    weight_width = width + out_width if OWN else width
    total = tl.zeros([BLOCK_M, BLOCK_O], tl.float32)
    total = _mixed(
        total, x, by_output, e, m, in_m, o, in_o,
        branches, width, weight_width, out_width, SHARED, EXACT, BLOCK_I,
    )  # fmt: skip
    if OWN:
        total = _mixed(
            total, z, by_output + width, e, m, in_m, o, in_o,
            branches, out_width, weight_width, out_width, True, EXACT, BLOCK_I,
        )  # fmt: skip
    at = m[:, None].to(tl.int64) * out_width + o[None, :]
    inside = in_m[:, None] & in_o[None, :]
    total += tl.load(z + at, mask=inside, other=0.0)
    tl.store(out + at, tl.where(total <= 0, 0.0, total), mask=inside)  # NaN stays


@triton.jit
def _mixed(
    total, x, by_output, e, m, in_m, o, in_o, branches, width, weight_width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """Add the branches' mixed maps of x, whose weights begin at `by_output`, to the total."""
    low_at = branches * weight_width * out_width
    row = m.to(tl.int64) * width if SHARED else m.to(tl.int64) * branches * width
    for first in range(0, width, BLOCK_I):
        i = first + tl.arange(0, BLOCK_I)
        in_i = i < width
        x_at, x_inside = x + row[:, None] + i[None, :], in_m[:, None] & in_i[None, :]
        inside = in_i[:, None] & in_o[None, :]
        high, low = _split(tl.load(x_at, mask=x_inside, other=0.0))
        for k in range(branches):
            if not SHARED:
                high, low = _split(tl.load(x_at + k * width, mask=x_inside, other=0.0))
            at = by_output + (k * out_width + o[None, :]) * weight_width + i[:, None]
            of_high = tl.load(at, mask=inside, other=0.0)
            of_low = tl.load(at + low_at, mask=inside, other=0.0)
            share = tl.load(e + m.to(tl.int64) * branches + k, mask=in_m, other=0.0)
            total += share[:, None] * _product(high, low, of_high, of_low, EXACT)
    return total


@triton.jit
def _backward(
    x, by_input, e, z, out, grad, grad_x, grad_e, grad_z, grad_sum,
    rows, branches, width, out_width,
    SHARED: tl.constexpr, OWN: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Gradients of x, of e, of z and of the sum that ReLU reads."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    o, k = tl.arange(0, BLOCK_O), tl.arange(0, BLOCK_K)
    in_m, in_o = m < rows, o < out_width
    weight_width = width + out_width if OWN else width
    at, inside = m[:, None].to(tl.int64) * out_width + o[None, :], in_m[:, None] & in_o[None, :]
    of_sum = _through_relu(out, grad, at, inside)
    tl.store(grad_sum + at, of_sum, mask=inside)
    high, low = _split(of_sum)
    of_e = tl.zeros([BLOCK_M, BLOCK_K], tl.float32)
    of_e, of_x, x_at, x_inside = _unmixed(
        of_e, high, low, x, grad_x, by_input, e, m, in_m, o, in_o,
        branches, width, weight_width, out_width, SHARED, EXACT, BLOCK_I,
    )  # fmt: skip
    if SHARED:
        tl.store(grad_x + x_at, of_x, mask=x_inside)
    if OWN:
        of_e, of_z, z_at, z_inside = _unmixed(
            of_e, high, low, z, grad_z, by_input + width * out_width, e, m, in_m, o, in_o,
            branches, out_width, weight_width, out_width, True, EXACT, BLOCK_O,
        )  # fmt: skip
        of_z += _through_relu(out, grad, z_at, z_inside)  # read again: fewer registers in the loops
        tl.store(grad_z + z_at, of_z, mask=z_inside)
    e_at = m[:, None].to(tl.int64) * branches + k[None, :]
    tl.store(grad_e + e_at, of_e, mask=in_m[:, None] & (k < branches)[None, :])


@triton.jit
def _through_relu(out, grad, at, inside):
    """Gradient of what ReLU reads from that of what it gave, `out`."""
    idle = tl.load(out + at, mask=inside, other=0.0) <= 0
    return tl.where(idle, 0.0, tl.load(grad + at, mask=inside, other=0.0))


@triton.jit
def _unmixed(
    of_e, high, low, x, grad_x, by_input, e, m, in_m, o, in_o,
    branches, width, weight_width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """Gradient of x, whose weights begin at `by_input`, and what x adds to that of e."""
    low_at = branches * weight_width * out_width
    i, all_k = tl.arange(0, BLOCK_I), tl.arange(0, of_e.shape[1])
    in_i = i < width
    row = m.to(tl.int64) * width if SHARED else m.to(tl.int64) * branches * width
    x_at, x_inside = row[:, None] + i[None, :], in_m[:, None] & in_i[None, :]
    inside = in_i[None, :] & in_o[:, None]
    inputs = tl.load(x + x_at, mask=x_inside, other=0.0)
    of_x = tl.zeros(inputs.shape, tl.float32)
    for k in range(branches):
        at = by_input + (k * weight_width + i[None, :]) * out_width + o[:, None]
        of_high = tl.load(at, mask=inside, other=0.0)
        of_low = tl.load(at + low_at, mask=inside, other=0.0)
        back = _product(high, low, of_high, of_low, EXACT)
        share = tl.load(e + m.to(tl.int64) * branches + k, mask=in_m, other=0.0)
        if SHARED:
            of_x += share[:, None] * back
        else:
            inputs = tl.load(x + x_at + k * width, mask=x_inside, other=0.0)
            tl.store(grad_x + x_at + k * width, share[:, None] * back, mask=x_inside)
        of_e += tl.where(all_k[None, :] == k, tl.sum(inputs * back, axis=1)[:, None], 0.0)
    return of_e, of_x, x_at, x_inside


@triton.jit
def _backward_weight(
    x, e, z, grad_sum, part, rows_of_split, rows, branches, width, out_width,
    SHARED: tl.constexpr, OWN: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """Gradient of a branch's weight over some of the nodes."""
    k, split = tl.program_id(0), tl.program_id(1)
    i, o = tl.arange(0, BLOCK_I), tl.arange(0, BLOCK_O)
    in_i, in_o = i < width, o < out_width
    weight_width = width + out_width if OWN else width
    of_x = tl.zeros([BLOCK_I, BLOCK_O], tl.float32)
    of_own = tl.zeros([BLOCK_O, BLOCK_O], tl.float32)
    for first in range(split * rows_of_split, (split + 1) * rows_of_split, BLOCK_M):
        m = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
        in_m = m < rows
        share = tl.load(e + m * branches + k, mask=in_m, other=0.0)
        at, inside = m[:, None] * out_width + o[None, :], in_m[:, None] & in_o[None, :]
        of_sum = tl.load(grad_sum + at, mask=inside, other=0.0)
        sum_high, sum_low = _split(of_sum * share[:, None])
        row = m * width if SHARED else (m * branches + k) * width
        x_at, x_inside = x + row[None, :] + i[:, None], in_m[None, :] & in_i[:, None]
        high, low = _split(tl.load(x_at, mask=x_inside, other=0.0))
        of_x += _product(high, low, sum_high, sum_low, EXACT)
        if OWN:
            z_at, z_inside = m[None, :] * out_width + o[:, None], in_m[None, :] & in_o[:, None]
            high, low = _split(tl.load(z + z_at, mask=z_inside, other=0.0))
            of_own += _product(high, low, sum_high, sum_low, EXACT)
    part += (split * branches + k) * weight_width * out_width
    at, inside = i[:, None] * out_width + o[None, :], in_i[:, None] & in_o[None, :]
    tl.store(part + at, of_x, mask=inside)
    if OWN:
        at, inside = o[:, None] * out_width + o[None, :], in_o[:, None] & in_o[None, :]
        tl.store(part + width * out_width + at, of_own, mask=inside)

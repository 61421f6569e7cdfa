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

MOST_INPUTS = 4096  # entries of a program's tile of inputs
PROGRAMS = 264  # of the weights' gradient, two for each multiprocessor of a large GPU


class FusedMixture(torch.autograd.Function):
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} x_u^{(k)} + z_u)$.

    Shapes:
        - x $[n, I]$ (the same for all branches) or $[n, K, I]$, weight $[K, I, O]$, e $[n, K]$,
          z $[n, O]$ → $[n, O]$
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
        x, weight, e, z = x.contiguous(), weight.contiguous(), e.contiguous(), z.contiguous()
        branches, width, out_width = weight.shape
        out = x.new_empty(x.shape[0], out_width)
        tile = _tile(width, out_width)
        _forward[(triton.cdiv(x.shape[0], tile["BLOCK_M"]),)](
            x, weight, e, z, out, x.shape[0], branches, width, out_width,
            SHARED=x.dim() == 2, num_stages=2, **tile | {"BLOCK_I": min(32, tile["BLOCK_I"])},
        )  # fmt: skip
        ctx.save_for_backward(x, weight, e, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, weight, e, out = ctx.saved_tensors
        branches, width, out_width = weight.shape
        rows, shared = x.shape[0], x.dim() == 2
        grad_x, grad_e, grad_z = (torch.empty_like(tensor) for tensor in (x, e, out))
        tile = _tile(width, out_width)
        tiles = triton.cdiv(rows, tile["BLOCK_M"])
        _backward[(tiles,)](
            x, weight, e, out, grad.contiguous(), grad_x, grad_e, grad_z,
            rows, branches, width, out_width, SHARED=shared, **tile,
        )  # fmt: skip
        splits = max(1, min(tiles, PROGRAMS // branches))
        rows_of_split = triton.cdiv(tiles, splits) * tile["BLOCK_M"]
        part = x.new_empty(splits, branches, width, out_width)
        _backward_weight[(branches, splits)](
            x, e, grad_z, part, rows, rows_of_split, branches, width, out_width,
            SHARED=shared, **tile,
        )  # fmt: skip
        return grad_x, part.sum(dim=0), grad_e, grad_z


def _tile(width: int, out_width: int) -> dict[str, Any]:
    """Sizes of a program's tile, powers of two that tensor cores take, and how they multiply."""
    block_i, block_o = (max(16, triton.next_power_of_2(side)) for side in (width, out_width))
    block_m = max(16, min(64, MOST_INPUTS // block_i))
    exact = torch.get_float32_matmul_precision() == "highest"
    return {"BLOCK_M": block_m, "BLOCK_I": block_i, "BLOCK_O": block_o, "EXACT": exact}


@triton.jit
def _split(x):
    """The TF32 part of fp32 numbers, and the rest."""
    high = (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def _product(a_high, a_low, b, EXACT: tl.constexpr):
    """a b for a = a_high + a_low; the product of the low parts is below fp32's precision."""
    if not EXACT:
        return tl.dot(a_high + a_low, b, input_precision="tf32")
    b_high, b_low = _split(b)
    small = tl.dot(a_low, b_high, input_precision="tf32")
    small = tl.dot(a_high, b_low, small, input_precision="tf32")
    return tl.dot(a_high, b_high, small, input_precision="tf32")


@triton.jit
def _forward(
    x, weight, e, z, out, rows, branches, width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    o = tl.arange(0, BLOCK_O)
    in_m, in_o = m < rows, o < out_width
    row = m.to(tl.int64) * width if SHARED else m.to(tl.int64) * branches * width
    total = tl.zeros([BLOCK_M, BLOCK_O], tl.float32)
    for first in range(0, width, BLOCK_I):
        i = first + tl.arange(0, BLOCK_I)
        in_i = i < width
        inside = in_m[:, None] & in_i[None, :]
        x_at = x + row[:, None] + i[None, :]
        high, low = _split(tl.load(x_at, mask=inside, other=0.0))
        for k in range(branches):
            if not SHARED:
                high, low = _split(tl.load(x_at + k * width, mask=inside, other=0.0))
            weight_at = weight + (k * width + i[:, None]) * out_width + o[None, :]
            of_branch = tl.load(weight_at, mask=in_i[:, None] & in_o[None, :], other=0.0)
            share = tl.load(e + m.to(tl.int64) * branches + k, mask=in_m, other=0.0)
            total += share[:, None] * _product(high, low, of_branch, EXACT)
    at = m[:, None].to(tl.int64) * out_width + o[None, :]
    inside = in_m[:, None] & in_o[None, :]
    total += tl.load(z + at, mask=inside, other=0.0)
    tl.store(out + at, tl.where(total <= 0, 0.0, total), mask=inside)  # NaN stays


@triton.jit
def _backward(
    x, weight, e, out, grad, grad_x, grad_e, grad_z, rows, branches, width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """Gradients of x, of e and of z; the last is that of what ReLU reads."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    i, o = tl.arange(0, BLOCK_I), tl.arange(0, BLOCK_O)
    in_m, in_i, in_o = m < rows, i < width, o < out_width
    inside = in_m[:, None] & in_i[None, :]
    row = m.to(tl.int64) * width if SHARED else m.to(tl.int64) * branches * width
    at = row[:, None] + i[None, :]
    out_at = m[:, None].to(tl.int64) * out_width + o[None, :]
    out_inside = in_m[:, None] & in_o[None, :]
    idle = tl.load(out + out_at, mask=out_inside, other=0.0) <= 0
    of_sum = tl.where(idle, 0.0, tl.load(grad + out_at, mask=out_inside, other=0.0))
    tl.store(grad_z + out_at, of_sum, mask=out_inside)
    high, low = _split(of_sum)
    inputs = tl.load(x + at, mask=inside, other=0.0)
    total = tl.zeros([BLOCK_M, BLOCK_I], tl.float32)
    for k in range(branches):
        weight_at = weight + (k * width + i[None, :]) * out_width + o[:, None]
        of_branch = tl.load(weight_at, mask=in_i[None, :] & in_o[:, None], other=0.0)
        back = _product(high, low, of_branch, EXACT)
        share_at = m.to(tl.int64) * branches + k
        share = tl.load(e + share_at, mask=in_m, other=0.0)
        if SHARED:
            total += share[:, None] * back
        else:
            inputs = tl.load(x + at + k * width, mask=inside, other=0.0)
            tl.store(grad_x + at + k * width, share[:, None] * back, mask=inside)
        tl.store(grad_e + share_at, tl.sum(inputs * back, axis=1), mask=in_m)
    if SHARED:
        tl.store(grad_x + at, total, mask=inside)


@triton.jit
def _backward_weight(
    x, e, grad, part, rows, rows_of_split, branches, width, out_width,
    SHARED: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """Gradient of a branch's weight over some of the nodes."""
    k, split = tl.program_id(0), tl.program_id(1)
    i, o = tl.arange(0, BLOCK_I), tl.arange(0, BLOCK_O)
    in_i, in_o = i < width, o < out_width
    total = tl.zeros([BLOCK_I, BLOCK_O], tl.float32)
    for first in range(split * rows_of_split, (split + 1) * rows_of_split, BLOCK_M):
        m = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
        in_m = m < rows
        row = m * width if SHARED else (m * branches + k) * width
        x_at = x + row[None, :] + i[:, None]
        high, low = _split(tl.load(x_at, mask=in_m[None, :] & in_i[:, None], other=0.0))
        share = tl.load(e + m * branches + k, mask=in_m, other=0.0)
        grad_at = grad + m[:, None] * out_width + o[None, :]
        grad_out = tl.load(grad_at, mask=in_m[:, None] & in_o[None, :], other=0.0)
        total += _product(high, low, grad_out * share[:, None], EXACT)
    part_at = part + ((split * branches + k) * width + i[:, None]) * out_width + o[None, :]
    tl.store(part_at, total, mask=in_i[:, None] & in_o[None, :])

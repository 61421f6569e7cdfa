"""Bias and ReLU in one pass, and rows of a matrix in single precision."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from canet.nn.kernels.launch import launch
from canet.nn.kernels.shared import MULTIPROCESSORS, sum_parts

ROWS = 16  # rows of a tile
MAX_COLUMNS = 256  # columns of a tile


class FusedBiasReLU(torch.autograd.Function):
    r"""$\mathrm{ReLU}(z + b)$ for z $[n, H]$ and b $[H]$; the sum for $db$ has a fixed order."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, bias: Tensor) -> Tensor:
        z, out = z.contiguous(), torch.empty_like(z)
        rows, width = z.shape
        block = _columns(width)
        launch(_forward, (triton.cdiv(rows, ROWS), triton.cdiv(width, block)))(
            z, bias.contiguous(), out, rows, width, BLOCK_R=ROWS, BLOCK_H=block
        )
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (out,) = ctx.saved_tensors
        grad, grad_z = grad.contiguous(), torch.empty_like(out)
        rows, width = out.shape
        block, tiles = _columns(width), triton.cdiv(rows, ROWS)
        programs = max(1, min(tiles, 4 * MULTIPROCESSORS))
        part = out.new_empty(programs, width)
        launch(_backward, (programs, triton.cdiv(width, block)))(
            out, grad, grad_z, part, triton.cdiv(tiles, programs), rows, width,
            BLOCK_R=ROWS, BLOCK_H=block,
        )  # fmt: skip
        return grad_z, sum_parts(part)


def select_rows(x: Tensor, rows: Tensor, kept: Tensor | None, slot: Tensor | None) -> Tensor:
    """As `canet.nn.operations.select_rows`."""
    width = x.shape[1]
    out = torch.empty(rows.numel(), width, device=rows.device)
    block = _columns(width)
    launch(_select, (triton.cdiv(rows.numel(), ROWS), triton.cdiv(width, block)))(
        x, rows, kept, slot, out, rows.numel(), width,
        HAS_KEPT=slot is not None, BLOCK_R=ROWS, BLOCK_H=block,
    )  # fmt: skip
    return out


def _columns(width: int) -> int:
    return min(MAX_COLUMNS, triton.next_power_of_2(width))


@triton.jit
def _forward(z, bias, out, rows, width, BLOCK_R: tl.constexpr, BLOCK_H: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    at = r[:, None].to(tl.int64) * width + h[None, :]
    inside = (r < rows)[:, None] & (h < width)[None, :]
    b = tl.load(bias + h, mask=h < width, other=0.0)
    tl.store(out + at, tl.maximum(tl.load(z + at, mask=inside) + b[None, :], 0.0), mask=inside)


@triton.jit
def _backward(
    out, grad, grad_z, part, tiles, rows, width, BLOCK_R: tl.constexpr, BLOCK_H: tl.constexpr
):
    """Gradient of some tiles of rows, and its sum over these rows."""
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    total = tl.zeros([BLOCK_R, BLOCK_H], part.dtype.element_ty)
    for tile in range(tiles):
        r = (tl.program_id(0) * tiles + tile) * BLOCK_R + tl.arange(0, BLOCK_R)
        at = r[:, None].to(tl.int64) * width + h[None, :]
        inside = (r < rows)[:, None] & (h < width)[None, :]
        is_on = tl.load(out + at, mask=inside, other=0.0) > 0
        found = tl.where(is_on, tl.load(grad + at, mask=inside, other=0.0), 0.0)
        tl.store(grad_z + at, found, mask=inside)
        total += found
    tl.store(part + tl.program_id(0) * width + h, tl.sum(total, axis=0), mask=h < width)


@triton.jit
def _select(
    x, rows, kept, slot, out, n, width,
    HAS_KEPT: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    inside = (r < n)[:, None] & (h < width)[None, :]
    row = tl.load(rows + r, mask=r < n, other=0)
    if HAS_KEPT:
        at = tl.load(slot + row, mask=r < n, other=0).to(tl.int64)
        is_kept = (at >= 0)[:, None]
        of_kept = tl.load(kept + at[:, None] * width + h[None, :], mask=inside & is_kept)
        of_x = tl.load(x + row[:, None] * width + h[None, :], mask=inside & ~is_kept)
        read = tl.where(is_kept, of_kept, of_x)
    else:
        read = tl.load(x + row[:, None] * width + h[None, :], mask=inside)
    tl.store(out + r[:, None].to(tl.int64) * width + h[None, :], read.to(tl.float32), mask=inside)

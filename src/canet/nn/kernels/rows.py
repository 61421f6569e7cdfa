"""Rows of a matrix in single precision."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from canet.nn.kernels.launch import launch

ROWS = 16  # rows of a tile
MAX_COLUMNS = 256  # columns of a tile


def select_rows(x: Tensor, rows: Tensor, kept: Tensor | None, slot: Tensor | None) -> Tensor:
    """As `canet.nn.operations.select_rows`."""
    width = x.shape[1]
    out = torch.empty(rows.numel(), width, device=rows.device)
    block = min(MAX_COLUMNS, triton.next_power_of_2(width))
    launch(_select, (triton.cdiv(rows.numel(), ROWS), triton.cdiv(width, block)))(
        x, rows, kept, slot, out, rows.numel(), width,
        HAS_KEPT=slot is not None, BLOCK_R=ROWS, BLOCK_H=block,
    )  # fmt: skip
    return out


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

"""Product of a sparse and a dense matrix whose sums have a fixed order.

cuSPARSE splits the entries evenly and adds partial sums of rows in varying order, so that the same
product can have different bits each time. Here rows are cut into segments, each summed by one
program, and the segments of a long row are merged in order.
"""

import triton
import triton.language as tl
from torch import Tensor

from canet.nn.kernels.launch import launch
from canet.nn.sparse_matrix import Pattern, Segments

ENTRIES = 16  # entries that a program reads at once, and segments that it merges at once
FEW_SEGMENTS = 2**14
"""With more segments, a program with wide rows processes several, with fewer entries each."""


def multiply(
    pattern: Pattern, value: Tensor | None, dense: Tensor, base: Tensor | None = None
) -> Tensor:
    """Return $A B$ for the values $[nnz]$ of A $[n, m]$ and a dense B $[m, h]$ → $[n, h]$.

    Without values, B is $[nnz, h]$ and its rows are summed over the entries of each row of A. A
    base $[b, h]$ is added to the first b rows.
    """
    dense, cut = dense.contiguous(), pattern.segments
    base = dense[:0] if base is None else base.contiguous()
    width, segments = dense.shape[1], cut.row.numel()
    out = dense.new_empty(pattern.shape[0], width)
    part = dense.new_empty(cut.num_slots, width)
    tile = _tile(segments, width, pattern.nnz)
    columns = triton.cdiv(width, tile["BLOCK_H"])
    launch(_multiply, (triton.cdiv(segments, tile["BLOCK_R"]), columns))(
        value, dense, pattern.col, cut.row, cut.begin, cut.end, cut.slot, base, out, part,
        segments, width, base.numel(), READ=value is not None, num_warps=1, **tile,
    )  # fmt: skip
    merge(cut, part, base, out)
    return out


def merge(cut: Segments, part: Tensor, base: Tensor, out: Tensor) -> None:
    """Sum the parts $[slots, h]$ of long rows into `out` $[n, h]$, and add the base."""
    if not cut.num_slots:
        return
    width = out.shape[1]
    block_h = _columns(width)
    launch(_merge, (cut.long_row.numel(), triton.cdiv(width, block_h)))(
        part, cut.long_row, cut.first_slot, base, out, width, base.numel(),
        BLOCK_N=ENTRIES, BLOCK_H=block_h, num_warps=1,
    )  # fmt: skip


def _tile(segments: int, width: int, entries: int) -> dict[str, int]:
    """Number of segments, entries per segment and columns that a program processes at once."""
    block_h = _columns(width)
    block_r, block_n = min(8, 64 // block_h), ENTRIES
    if block_r == 1 and segments > FEW_SEGMENTS:
        block_r, block_n = 2, ENTRIES // 2
        if entries < 2 * segments:  # most rows have one entry
            block_r, block_n = 8, 2
    return {"BLOCK_R": block_r, "BLOCK_N": block_n, "BLOCK_H": block_h}


def _columns(width: int) -> int:
    """Number of columns of a tile."""
    return min(64, triton.next_power_of_2(width))


@triton.jit
def _multiply(
    value, dense, col, rows, begins, ends, slots, base, out, part, segments, width, base_size,
    READ: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Sum some segments: store whole rows in `out` and parts of long rows in `part`."""
    s = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    in_s, in_h = s < segments, h < width
    begin = tl.load(begins + s, mask=in_s, other=0)
    end = tl.load(ends + s, mask=in_s, other=0)
    row = tl.load(rows + s, mask=in_s, other=0).to(tl.int64)
    slot = tl.load(slots + s, mask=in_s, other=0).to(tl.int64)
    summed = tl.zeros([BLOCK_R, BLOCK_H], dense.dtype.element_ty)
    for first in range(0, tl.max(end - begin), BLOCK_N):
        n = begin[:, None] + first + tl.arange(0, BLOCK_N)[None, :]
        in_n = n < end[:, None]
        v = tl.load(col + n, mask=in_n, other=0).to(tl.int64) if READ else n.to(tl.int64)
        at = v[:, :, None] * width + h[None, None, :]
        inside = in_n[:, :, None] & in_h[None, None, :]
        read = tl.load(dense + at, mask=inside, other=0.0)
        if READ:
            read *= tl.load(value + n, mask=in_n, other=0.0)[:, :, None]
        summed += tl.sum(read, axis=1)
    inside, whole = in_s[:, None] & in_h[None, :], (slot < 0)[:, None]
    tl.store(part + slot[:, None] * width + h[None, :], summed, mask=inside & ~whole)
    at, inside = row[:, None] * width + h[None, :], inside & whole
    summed += tl.load(base + at, mask=inside & (at < base_size), other=0.0)
    tl.store(out + at, summed, mask=inside)


@triton.jit
def _merge(
    part, long_row, first_slot, base, out, width, base_size,
    BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    in_h = h < width
    begin, end = tl.load(first_slot + row), tl.load(first_slot + row + 1)
    summed = tl.zeros([BLOCK_H], part.dtype.element_ty)
    for first in range(begin, end, BLOCK_N):
        slot = first + tl.arange(0, BLOCK_N)
        at, inside = slot[:, None].to(tl.int64) * width + h[None, :], (slot < end)[:, None]
        summed += tl.sum(tl.load(part + at, mask=inside & in_h[None, :], other=0.0), axis=0)
    at = tl.load(long_row + row).to(tl.int64) * width + h
    summed += tl.load(base + at, mask=in_h & (at < base_size), other=0.0)
    if begin < end:
        tl.store(out + at, summed, mask=in_h)

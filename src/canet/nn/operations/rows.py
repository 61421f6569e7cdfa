"""Rows of a matrix."""

from __future__ import annotations

from torch import Tensor

from canet.nn.operations import fused


def select_rows(
    x: Tensor, rows: Tensor, kept: Tensor | None = None, slot: Tensor | None = None
) -> Tensor:
    """Return the given rows $[n]$ of x $[N, D]$, which may have half precision, as float32.

    Args:
        x: The matrix. A GPU can also read it from pinned memory.
        rows: Numbers of the rows.
        kept: Copies $[k, D]$ of some rows of x that a GPU reads instead.
        slot: Position $[N]$ of each row of x in `kept`; -1 if there is no copy.
    """
    if not fused.on_gpu(rows):
        return x[rows].float()
    from canet.nn.kernels.rows import select_rows as select

    return select(x, rows, kept, slot)

"""Operations on each row of a matrix."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from canet.nn.operations import fused


def add_relu(z: Tensor, bias: Tensor) -> Tensor:
    """Return $\\mathrm{ReLU}(z + b)$ for z $[n, H]$ and b $[H]$."""
    if not fused.is_float32_on_gpu(z):
        return F.relu(z + bias)
    from canet.nn.kernels.activation import FusedBiasReLU

    out: Tensor = FusedBiasReLU.apply(z, bias)
    return out


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
    from canet.nn.kernels.activation import select_rows as select

    return select(x, rows, kept, slot)

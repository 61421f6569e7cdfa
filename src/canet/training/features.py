"""Scaling of features with statistics of each graph. The model stores no statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from canet.methods.base import Scaling
from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.nn.sparse_matrix import Pattern

MIN_DEVIATION = torch.finfo(torch.float32).eps
"""Smallest standard deviation of a column, relative to its mean, at which it is not constant."""


def prepare_features(x: Tensor | SparseMatrix, graph: Tensor | None, how: Scaling) -> Features:
    r"""Prepare features $[N, D]$ separately for each graph:

    - `raw`: unchanged;
    - `rows`: $x_{vj} / \sum_i |x_{vi}|$;
    - `centred`: $x_{vj} - m_{gj}$, with m the mean over the nodes of v's graph g;
    - `standardised`: $(x_{vj} - m_{gj}) / s_{gj}$, with s their standard deviation, or 1 for a
      constant column.

    Sparse features stay sparse: the means are stored as one offset per graph.

    Args:
        x: Features, dense or sparse.
        graph: Graph number $[N]$ of each node. None: all nodes are in one graph.
        how: The preparation.
    """
    rows = x
    if isinstance(x, Tensor) and x.layout == torch.sparse_csr:
        rows = SparseMatrix.from_torch(x)
    if how == "raw":
        return rows
    if how == "rows":
        return _divide_by_row_sum(rows)
    number = torch.zeros(x.shape[0], dtype=torch.long)
    if graph is not None:
        number = graph.unique(return_inverse=True)[1]
    return _centred(rows, number, scaled=how == "standardised")


def _divide_by_row_sum(x: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
    """Divide each row by the sum of its absolute values; rows of zeros do not change."""
    if isinstance(x, Tensor):
        total = x.abs().sum(dim=1, dtype=torch.double)
        return (x / torch.where(total > 0, total, 1.0)[:, None]).float()
    row = x.pattern.row.long()
    total = torch.bincount(row, weights=x.value.abs(), minlength=x.shape[0])
    return SparseMatrix(x.pattern, (x.value / torch.where(total > 0, total, 1.0)[row]).float())


def _centred(x: Tensor | SparseMatrix, number: Tensor, scaled: bool) -> Features:
    """Subtract the mean of each graph $[N]$ and, if `scaled`, divide by the standard deviation."""
    mean, deviation = _moments(x, number)
    return shift_and_scale(x, number, mean, column_scale(mean, deviation, scaled))


def column_scale(mean: Tensor, deviation: Tensor, scaled: bool) -> Tensor:
    """Return 1 / deviation $[G, D]$, or 1 for constant columns and if not `scaled`."""
    if not scaled:
        return torch.ones_like(mean)
    return torch.where(deviation > MIN_DEVIATION * mean.abs(), 1 / deviation, 1.0)


def shift_and_scale(
    x: Tensor | SparseMatrix, number: Tensor, mean: Tensor, scale: Tensor
) -> Features:
    """Subtract `mean` $[G, D]$ and multiply by `scale` $[G, D]$ of each row's graph $[n]$."""
    if isinstance(x, Tensor):
        return ((x - mean[number]) * scale[number]).float()
    pattern = x.pattern
    value = x.value * scale[number[pattern.row], pattern.col]
    starts = torch.arange(len(number) + 1, device=number.device)
    one_hot = Pattern(starts, number, len(mean))
    member = SparseMatrix(one_hot, torch.ones(len(number), device=number.device))
    return ShiftedFeatures(SparseMatrix(pattern, value.float()), (-mean * scale).float(), member)


def _moments(x: Tensor | SparseMatrix, number: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation $[G, D]$ of the columns in each graph, as doubles."""
    size = torch.bincount(number)[:, None].double()
    shape = (len(size), x.shape[1])
    if isinstance(x, Tensor):
        zeros = torch.zeros(shape, dtype=torch.double)
        mean = zeros.index_add(0, number, x.double()) / size
        squares = zeros.index_add(0, number, (x - mean[number]).square())
    else:
        cell = number[x.pattern.row] * shape[1] + x.pattern.col

        def total(values: Tensor | None = None) -> Tensor:
            """Sum the values of the entries per graph and column, or count the entries."""
            return torch.bincount(cell, values, minlength=shape[0] * shape[1]).view(shape)

        mean = total(x.value.double()) / size
        zeros = (size - total()) * mean.square()
        squares = total((x.value - mean.flatten()[cell]).square()) + zeros
    return mean, (squares / size).sqrt()

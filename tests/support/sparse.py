"""Sparse matrices from entries in any order."""

import torch
from torch import Tensor

from canet.nn import SparseMatrix
from canet.nn.sparse_matrix import Pattern


def from_entries(row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> SparseMatrix:
    """Build a matrix; duplicate entries are kept and add up in products."""
    order = torch.argsort(row * shape[1] + col, stable=True)
    count = torch.bincount(row, minlength=shape[0])
    rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return SparseMatrix(Pattern(rowptr, col[order], shape[1]), value[order])

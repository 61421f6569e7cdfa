"""Sparse CSR matrices between torch and scipy, which does what torch cannot: slice and stack."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


def from_scipy(matrix: sp.csr_matrix) -> Tensor:
    """Scipy matrix → torch sparse CSR with int64 indices and float32 values; duplicates add up."""
    matrix = sp.csr_matrix(matrix, copy=True)
    matrix.sum_duplicates()
    return torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr.astype(np.int64)),
        torch.from_numpy(matrix.indices.astype(np.int64)),
        torch.from_numpy(matrix.data.astype(np.float32)),
        matrix.shape,
        check_invariants=True,
    )


def to_scipy(matrix: Tensor) -> sp.csr_matrix:
    """Torch sparse CSR on the CPU → scipy matrix that shares its memory."""
    parts = (matrix.values().numpy(), matrix.col_indices().numpy(), matrix.crow_indices().numpy())
    return sp.csr_matrix(parts, shape=tuple(matrix.shape))

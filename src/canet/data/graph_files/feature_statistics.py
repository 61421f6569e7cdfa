"""What there is to know of a matrix of features at first sight."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.arrays import as_array
from canet.errors import InputError, listed

WILD = 1e4
"""A feature beyond it drowns the others."""


@dataclass
class FeatureStatistics:
    """Features $[N, D]$ at first sight.

    Args:
        nodes: N.
        features: D; None if they are no matrix of numbers.
        holds: Type and layout.
        empty: Entries that are NaN.
        content: Range of the finite entries.
        warnings: What is wrong or looks so, a line each.
    """

    nodes: int
    features: int | None = None
    holds: str = "no matrix of numbers"
    empty: int = 0
    content: str = ""
    warnings: list[str] = field(default_factory=list)


def feature_statistics(x: Any, path: Path) -> FeatureStatistics:
    """Statistics of features as a file holds them: an array, a tensor, or scipy's matrix."""
    try:
        matrix = _matrix(x)
    except InputError as error:
        nodes = x.shape[0] if getattr(x, "ndim", 0) else 0
        return FeatureStatistics(nodes, warnings=[f"'{path}': {error}"])
    n, width = matrix.shape
    if not n or not width:
        return FeatureStatistics(n, warnings=[f"'{path}': x has shape [{n}, {width}]"])
    sparse = sp.issparse(matrix)
    low, high, nan, infinite = _by_column(matrix)
    layout = "sparse" if sparse else "dense"
    size = np.fmax(np.abs(low), np.abs(high))
    found = {
        f"NaN ({nan.sum():,} entries; replace them)": nan > 0,
        f"infinity ({infinite.sum():,} entries; replace them)": infinite > 0,
        f"values up to {np.fmax.reduce(size):g} (standardise them)": size > WILD,
        "the same value for all nodes": low == high,
    }
    return FeatureStatistics(
        nodes=n,
        features=width,
        holds=f"{matrix.dtype}, {layout}",
        empty=int(nan.sum()),
        content=_range(low, high),
        warnings=[_of_columns(path, what, where) for what, where in found.items() if where.any()],
    )


def _matrix(x: Any) -> Any:
    """A numpy array or scipy's CSR matrix with two axes and real numbers."""
    if isinstance(x, Tensor) and x.layout != torch.strided:
        coo = x.detach().cpu().to_sparse_coo().coalesce()
        if coo.sparse_dim() != 2 or coo.dense_dim():
            raise InputError(f"x has shape {list(x.shape)}: it must be [nodes, features]")
        parts = (coo.values().numpy(), coo.indices().numpy())
        try:
            x = sp.csr_matrix(parts, shape=tuple(coo.shape))
        except ValueError as error:
            raise InputError(f"x is a damaged sparse matrix ({error})") from error
    matrix = x if sp.issparse(x) else as_array(x, "x")
    if matrix.ndim != 2:
        raise InputError(f"x has shape {list(matrix.shape)}: it must be [nodes, features]")
    if matrix.dtype.kind not in "iufb":
        raise InputError(f"x holds {matrix.dtype}: features are numbers")
    return matrix


def _by_column(matrix: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Least and largest finite entry, and how many are NaN and infinite, of each column $[D]$."""
    width = matrix.shape[1]
    if sp.issparse(matrix):
        values = matrix.data.astype(np.float64)
        counts = [
            np.bincount(matrix.indices[wrong], minlength=width)
            for wrong in (np.isnan(values), np.isinf(values))
        ]
        finite = sp.csr_matrix(
            (np.where(np.isfinite(values), values, 0), matrix.indices, matrix.indptr), matrix.shape
        )
        low, high = (m.toarray().ravel() for m in (finite.min(axis=0), finite.max(axis=0)))
        return low, high, *counts
    low, high = np.full(width, np.nan), np.full(width, np.nan)
    nan, infinite = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=np.int64)
    step = max(1, 2**22 // width)
    for start in range(0, len(matrix), step):
        values = matrix[start : start + step].astype(np.float64)
        nan += np.isnan(values).sum(axis=0)
        infinite += np.isinf(values).sum(axis=0)
        values[np.isinf(values)] = np.nan
        low = np.fmin(low, np.fmin.reduce(values, axis=0))
        high = np.fmax(high, np.fmax.reduce(values, axis=0))
    return low, high, nan, infinite


def _range(low: np.ndarray, high: np.ndarray) -> str:
    known = ~np.isnan(low)
    return f"{low[known].min():g} to {high[known].max():g}" if known.any() else ""


def _of_columns(path: Path, what: str, where: np.ndarray) -> str:
    columns = np.flatnonzero(where).tolist()
    word = "column" if len(columns) == 1 else f"{len(columns):,} columns"
    return f"'{path}': x has {what} in {word} {listed(map(str, columns))}"

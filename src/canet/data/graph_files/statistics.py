"""Numbers that describe the edges and the features of a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.sparsefuncs import min_max_axis
from torch import Tensor

from canet.data.arrays import as_array
from canet.errors import InputError, listed
from canet.util.sparse import components

LARGE = 1e4
"""A feature with larger values dominates the others."""


@dataclass(frozen=True)
class EdgeStatistics:
    """Counts of edges, components and degrees.

    Args:
        edges: All that are listed, self-loops and repeated ones too.
        self_loops: Edges from a node to itself.
        repeated: Edges that are listed before.
        reverse_share: Share of different edges, without self-loops, whose reverse is listed too;
            None if there are none.
        components: Weakly connected components.
        largest_component: Nodes of the largest.
        isolated: Nodes without an edge to another node.
        degree_median, degree_max: Of the incoming edges of nodes.
    """

    edges: int
    self_loops: int
    repeated: int
    reverse_share: float | None
    components: int
    largest_component: int
    isolated: int
    degree_median: float
    degree_max: int


def edge_statistics(edge_index: np.ndarray, num_nodes: int) -> EdgeStatistics:
    """Statistics of edges $[2, E]$ (source, target) between nodes 0 to N - 1; N is 1 or more."""
    source, target = edge_index
    different = np.unique(source * num_nodes + target)
    source, target = np.divmod(different, num_nodes)
    loops = source == target
    joined = np.zeros(num_nodes, dtype=bool)
    joined[source[~loops]] = joined[target[~loops]] = True
    reverse = (target * num_nodes + source)[~loops]
    places = np.minimum(np.searchsorted(different, reverse), max(len(different) - 1, 0))
    both_ways = different[places] == reverse
    sizes = np.bincount(components(torch.from_numpy(edge_index), num_nodes).numpy())
    degrees = np.bincount(edge_index[1], minlength=num_nodes)
    return EdgeStatistics(
        edges=edge_index.shape[1],
        self_loops=int((edge_index[0] == edge_index[1]).sum()),
        repeated=edge_index.shape[1] - len(different),
        reverse_share=float(both_ways.mean()) if both_ways.size else None,
        components=len(sizes),
        largest_component=int(sizes.max()),
        isolated=int((~joined).sum()),
        degree_median=float(np.median(degrees)),
        degree_max=int(degrees.max()),
    )


@dataclass
class FeatureStatistics:
    """Features $[N, D]$ of a file of arrays.

    Args:
        nodes: N.
        features: D; None if they are not a matrix of numbers.
        kind: Type and layout.
        empty: Entries that are NaN.
        content: Range of the finite entries.
        warnings: What is wrong or looks wrong, a line each.
    """

    nodes: int
    features: int | None = None
    kind: str = "not a matrix of numbers"
    empty: int = 0
    content: str = ""
    warnings: list[str] = field(default_factory=list)


def feature_statistics(x: Any, path: Path) -> FeatureStatistics:
    """Statistics of features as a file has them: an array, a tensor, or scipy's matrix."""
    try:
        matrix = _matrix(x)
    except InputError as error:
        nodes = x.shape[0] if getattr(x, "ndim", 0) else 0
        return FeatureStatistics(nodes, warnings=[f"'{path}': {error}"])
    values = matrix.data if sp.issparse(matrix) else matrix
    not_number, infinite = np.isnan(values), np.isinf(values)
    nan, infinity = (_count(matrix, wrong) for wrong in (not_number, infinite))
    values[infinite] = np.nan
    if sp.issparse(matrix):
        low, high = min_max_axis(matrix, axis=0, ignore_nan=True)
    else:
        low, high = np.fmin.reduce(matrix), np.fmax.reduce(matrix)
    size = np.fmax(np.abs(low), np.abs(high))
    found = {
        f"NaN ({nan.sum():,} entries; replace them)": nan > 0,
        f"infinity ({infinity.sum():,} entries; replace them)": infinity > 0,
        f"values up to {np.fmax.reduce(size):g} (standardise them)": size > LARGE,
        "the same value for all nodes": low == high,
    }
    known = ~np.isnan(low)
    return FeatureStatistics(
        nodes=matrix.shape[0],
        features=matrix.shape[1],
        kind=f"{getattr(x, 'dtype', matrix.dtype)}, {'sparse' if sp.issparse(matrix) else 'dense'}",
        empty=int(nan.sum()),
        content=f"{low[known].min():g} to {high[known].max():g}" if known.any() else "",
        warnings=[_column_warning(path, what, at) for what, at in found.items() if at.any()],
    )


def _matrix(x: Any) -> Any:
    """A copy as float64: a numpy array, or scipy's CSR matrix, with rows and columns."""
    if isinstance(x, Tensor) and x.layout != torch.strided:
        coo = x.detach().cpu().to_sparse_coo().coalesce()
        if coo.sparse_dim() == 2 and not coo.dense_dim():
            x = sp.csr_matrix((coo.values().numpy(), coo.indices().numpy()), tuple(coo.shape))
    matrix = x if sp.issparse(x) else as_array(x, "x")
    if matrix.ndim != 2 or not all(matrix.shape):
        raise InputError(f"x has shape {list(matrix.shape)}: it must be [nodes, features]")
    if matrix.dtype.kind not in "iufb":
        raise InputError(f"x contains {matrix.dtype}: features are numbers")
    return matrix.astype(np.float64)


def _count(matrix: Any, chosen: np.ndarray) -> np.ndarray:
    """How many entries of each column $[D]$ are chosen."""
    if sp.issparse(matrix):
        return np.bincount(matrix.indices[chosen], minlength=matrix.shape[1])
    return chosen.sum(axis=0)


def _column_warning(path: Path, what: str, where: np.ndarray) -> str:
    columns = np.flatnonzero(where).tolist()
    word = "column" if len(columns) == 1 else f"{len(columns):,} columns"
    return f"'{path}': x has {what} in {word} {listed(map(str, columns))}"

"""What scipy and numpy do and torch cannot, or slowly: sparse matrices, edges, components."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
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


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows $[n]$ of a matrix $[N, D]$, in its layout: dense or sparse CSR."""
    sparse = x.layout == torch.sparse_csr
    return from_scipy(to_scipy(x)[rows.numpy()]) if sparse else x[rows]


def adjacency(edge_index: Tensor, num_nodes: int) -> sp.csr_matrix:
    """Which nodes the edges $[2, E]$ link: a boolean matrix $[N, N]$ of sources and targets."""
    source, target = edge_index.cpu().numpy()
    links = sp.coo_matrix((np.ones(source.size, bool), (source, target)), [num_nodes] * 2)
    return links.tocsr()


def unique_edges(edge_index: Tensor, num_nodes: int, both_ways: bool = False) -> Tensor:
    """Each of the edges $[2, E]$, and its reverse with `both_ways`, once, by source and target."""
    links = adjacency(edge_index, num_nodes)
    if both_ways:
        links = links + links.T
    source = np.repeat(np.arange(num_nodes), np.diff(links.indptr))
    return torch.from_numpy(np.stack([source, links.indices]))


def components(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Number $[N]$ of the weakly connected component of each node, for edges $[2, E]$."""
    links = adjacency(edge_index, num_nodes)
    return torch.from_numpy(connected_components(links, directed=False)[1])

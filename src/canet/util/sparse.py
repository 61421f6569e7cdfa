"""Operations on sparse matrices and edges that are faster in scipy than in torch."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from canet.util.files import scratch_array

EDGES_AT_ONCE = 2**22
Matrix: TypeAlias = Any  # a numpy array, or a scipy CSR matrix


class Csr(NamedTuple):
    """The edges of a graph, grouped by target; the arrays may be memory maps.

    `rowptr` $[N + 1]$ is where the edges into each node begin, `col` $[E]$ are the sources of the
    edges except self-loops, `weight` $[E]$ their weights (None: one), and `loops` $[N]$ the weights
    of the self-loops (0 if a node has none; None: there are none).
    """

    rowptr: Tensor
    col: Tensor
    weight: Tensor | None = None
    loops: Tensor | None = None

    @property
    def num_edges(self) -> int:
        """Number of edges, with self-loops."""
        return self.col.numel() + (0 if self.loops is None else int(self.loops.count_nonzero()))

    def degree(self, nodes: Tensor) -> Tensor:
        """Return the number $[n]$ of edges into some nodes, with self-loops."""
        degree = self.rowptr[nodes + 1] - self.rowptr[nodes]
        return degree if self.loops is None else degree + (self.loops[nodes] > 0)

    def edges_into(self, nodes: Tensor) -> Tensor:
        """Return the edges $[2, m]$ (source, target) into some nodes, without self-loops."""
        begin = self.rowptr[nodes]
        count = self.rowptr[nodes + 1] - begin
        row = torch.arange(nodes.numel(), device=nodes.device).repeat_interleave(count)
        first = begin - count.cumsum(0) + count
        entry = torch.arange(row.numel(), device=nodes.device) + first[row]
        return torch.stack([self.col[entry].long(), nodes[row]])

    def within(self, group: Tensor) -> "Csr":
        """Return the edges between nodes of the same group $[N]$; large arrays are in files."""
        rowptr, num_nodes, first, end = self.rowptr, group.numel(), 0, 0
        bounds = torch.zeros(num_nodes + 1, dtype=torch.long, device=rowptr.device)
        parts = [part for part in (self.col, self.weight) if part is not None]
        found = [_empty_like(part) for part in parts]
        while first < num_nodes:
            begin, most = int(rowptr[first]), int(rowptr[first]) + EDGES_AT_ONCE
            last = max(first + 1, int(torch.searchsorted(rowptr, most, right=True)) - 1)
            own = group[first:last].repeat_interleave(rowptr[first : last + 1].diff())
            span = slice(begin, begin + own.numel())
            kept = group[self.col[span].long()] == own
            count = torch.cat([bounds[:1], kept.cumsum(0)])
            bounds[first + 1 : last + 1] = end + count[rowptr[first + 1 : last + 1] - begin]
            begin, end, first = end, int(bounds[last]), last
            for part, target in zip(parts, found, strict=True):
                target[begin:end] = part[span][kept]
        col, *weight = (target[:end] for target in found)
        return Csr(bounds, col, weight[0] if weight else None, self.loops)

    def to(self, device: torch.device | str) -> "Csr":
        return Csr(*(part if part is None else part.to(device) for part in self))  # type: ignore[arg-type]


def _empty_like(part: Tensor) -> Tensor:
    if part.is_cuda:
        return torch.empty_like(part)
    return torch.from_numpy(scratch_array((part.numel(),), part[:0].numpy().dtype))


def from_scipy(matrix: sp.csr_matrix) -> Tensor:
    """Convert a scipy matrix to torch sparse CSR (int64, float32); duplicate entries are summed."""
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
    """Convert a torch sparse CSR matrix on the CPU to a scipy matrix that shares its memory."""
    parts = (matrix.values().numpy(), matrix.col_indices().numpy(), matrix.crow_indices().numpy())
    return sp.csr_matrix(parts, shape=tuple(matrix.shape))


def to_matrix(values: Tensor) -> Matrix:
    """Convert a dense or sparse CSR tensor on the CPU to a matrix that shares its memory."""
    return to_scipy(values) if values.layout == torch.sparse_csr else values.numpy()


def from_matrix(matrix: Matrix) -> Tensor:
    """Convert a matrix to a dense or sparse CSR tensor."""
    return from_scipy(matrix) if sp.issparse(matrix) else torch.from_numpy(matrix)


def stacked(first: Matrix, second: Matrix) -> Matrix:
    """Return the rows of two matrices in one, which is sparse if the first one is."""
    if sp.issparse(first):
        return sp.vstack([first, second]).tocsr()
    return np.concatenate([first, second.toarray() if sp.issparse(second) else second])


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return the rows $[n]$ of a dense or sparse CSR matrix $[N, D]$ in the same layout."""
    is_sparse = x.layout == torch.sparse_csr
    return from_scipy(to_scipy(x)[rows.numpy()]) if is_sparse else x[rows]


def adjacency(edge_index: Tensor, num_nodes: int) -> sp.csr_matrix:
    """Return the boolean adjacency matrix $[N, N]$ (source, target) of the edges $[2, E]$."""
    source, target = edge_index.cpu().numpy()
    links = sp.coo_matrix((np.ones(source.size, bool), (source, target)), [num_nodes] * 2)
    return links.tocsr()


def unique_edges(
    edge_index: Tensor, num_nodes: int, both_ways: bool = False, weight: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return the edges $[2, E]$ without duplicates, sorted, and their weights $[E]$.

    `both_ways` adds the reverse edges. A duplicate edge has the largest of its weights.
    """
    if weight is None:
        links = adjacency(edge_index, num_nodes)
        if both_ways:
            links = links + links.T
        source = np.repeat(np.arange(num_nodes), np.diff(links.indptr))
        return torch.from_numpy(np.stack([source, links.indices])), None
    if both_ways:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        weight = torch.cat([weight, weight])
    key = (edge_index[0] * num_nodes + edge_index[1]).numpy()
    order = np.lexsort([-weight.numpy(), key])
    is_first = np.diff(key[order], prepend=-1) > 0
    chosen = torch.from_numpy(order[is_first])
    return edge_index[:, chosen], weight[chosen]


def components(edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> Tensor:
    """Return the weakly connected component $[N]$ of each node, given the edges $[2, E]$.

    Edges of weight 0 join nothing.
    """
    if edge_weight is not None:
        edge_index = edge_index[:, edge_weight > 0]
    links = adjacency(edge_index, num_nodes)
    return torch.from_numpy(connected_components(links, directed=False)[1])

"""Statistics of the edges of a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components

from canet.util.sparse import adjacency


@dataclass(frozen=True)
class EdgeStatistics:
    """Counts of edges, components and degrees."""

    edges: int  # including self-loops and duplicates
    self_loops: int
    repeated: int  # duplicates of other edges
    reverse_share: float | None  # distinct edges with a reverse edge, without self-loops
    components: int  # weakly connected
    largest_component: int
    isolated: int  # nodes without an edge to another node
    degree_median: float  # distinct incoming edges
    degree_max: int


def edge_statistics(edge_index: np.ndarray, num_nodes: int) -> EdgeStatistics:
    """Compute statistics of edges $[2, E]$ (source, target) between nodes 0 to N - 1, N ≥ 1."""
    links = adjacency(torch.from_numpy(edge_index), num_nodes)
    loops = links.diagonal()
    outgoing = np.diff(links.indptr)
    incoming = np.bincount(links.indices, minlength=num_nodes)
    proper = links.nnz - int(loops.sum())
    both_ways = links.multiply(links.T).nnz - int(loops.sum())
    sizes = np.bincount(connected_components(links, directed=False)[1])
    return EdgeStatistics(
        edges=edge_index.shape[1],
        self_loops=int((edge_index[0] == edge_index[1]).sum()),
        repeated=edge_index.shape[1] - links.nnz,
        reverse_share=both_ways / proper if proper else None,
        components=len(sizes),
        largest_component=int(sizes.max()),
        isolated=int((outgoing + incoming == 2 * loops).sum()),
        degree_median=float(np.median(incoming)),
        degree_max=int(incoming.max()),
    )

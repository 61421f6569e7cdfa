"""Numbers that describe the edges of a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from canet.util.sparse import components


@dataclass(frozen=True)
class EdgeStatistics:
    """Counts of edges, components and degrees."""

    edges: int  # all that are listed, with self-loops and repeated ones
    self_loops: int
    repeated: int  # edges that are listed before
    reverse_share: float | None  # of different edges without self-loops; None if there are none
    components: int  # weakly connected
    largest_component: int
    isolated: int  # nodes without an edge to another node
    degree_median: float  # of different incoming edges
    degree_max: int


def edge_statistics(edge_index: np.ndarray, num_nodes: int) -> EdgeStatistics:
    """Statistics of edges $[2, E]$ (source, target) between nodes 0 to N - 1; N is 1 or more."""
    source, target = edge_index
    different = np.unique(source * num_nodes + target)
    source, target = np.divmod(different, num_nodes)
    loops = source == target
    joined = np.zeros(num_nodes, dtype=bool)
    joined[source[~loops]] = joined[target[~loops]] = True
    both_ways = np.isin((target * num_nodes + source)[~loops], different)
    sizes = np.bincount(components(torch.from_numpy(edge_index), num_nodes).numpy())
    degrees = np.bincount(target, minlength=num_nodes)
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

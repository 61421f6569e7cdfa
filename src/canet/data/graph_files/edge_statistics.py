"""What there is to know of a graph's edges at first sight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from canet.util.sparse import components


@dataclass(frozen=True)
class EdgeStatistics:
    """Counts of edges and of what they join.

    Args:
        edges: All that are listed, self-loops and repeated ones too.
        self_loops: Edges from a node to itself.
        repeated: Edges that stand there more than once, without the first of each.
        reverse_share: Share of different edges, without self-loops, whose reverse is there too;
            None if there are none.
        components: Weakly connected ones.
        largest_component: Nodes of the largest.
        isolated: Nodes that no edge joins to another.
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

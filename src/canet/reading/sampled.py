"""A part of a graph on disk, in memory: some nodes, and random neighbours of them."""

import torch
from torch import Tensor

from canet.data.graph import Graph
from canet.nn.sampling import draw_neighbours
from canet.reading.prepared import PreparedGraph
from canet.util.sparse import select_rows

MAX_NODES = 2_000  # largest number of nodes whose predictions are diagnosed
FANOUT = (15, 5)  # neighbours that are drawn for each node of the first hop, and of further ones


def sampled_part(
    graph: PreparedGraph, nodes: Tensor, typical: Tensor, num_hops: int
) -> tuple[PreparedGraph, Tensor]:
    r"""Return a graph of some nodes and random neighbours, and the ids $[M]$ of its nodes, sorted.

    A node with $d$ neighbours, of which $k$ are drawn, has edges of weight $d/k$: sums over its
    neighbours are correct on average, and degrees are exact. One hop more than the models read is
    drawn, with one neighbour for each node, so that the nodes of the last hop have their degrees.

    Args:
        graph: The graph on disk.
        nodes: The nodes to predict, each of them once.
        typical: A random sample of all nodes. Their columns determine how all columns are scaled.
        num_hops: Number of hops that the models read.
    """
    csr = graph.data.csr
    assert csr is not None
    known = new = torch.cat([nodes, typical]).unique()
    edges, weights = list[Tensor](), list[Tensor]()
    for hop in range(num_hops + 1):
        count = 1 if hop == num_hops else FANOUT[min(hop, len(FANOUT) - 1)]
        drawn = draw_neighbours(csr.rowptr, new, count, hop)
        assert drawn.factor is not None
        source = csr.col[drawn.entry].long()
        edges.append(torch.stack([source, new[drawn.row]]))
        weights.append(
            drawn.factor[drawn.row] * (1 if csr.weight is None else csr.weight[drawn.entry])
        )
        new = source.unique()
        new = new[~torch.isin(new, known)]
        known = torch.cat([known, new])
    ids = known.sort().values
    if csr.loops is not None:
        loops = ids[csr.loops[ids] > 0]
        edges.append(loops.expand(2, -1))
        weights.append(csr.loops[loops])
    part = Graph(
        x=select_rows(graph.data.x, ids).float(),
        edge_index=torch.searchsorted(ids, torch.cat(edges, dim=1)),
        batch=torch.zeros_like(ids),
        edge_weight=torch.cat(weights).float(),
        node_id=graph.data.names(ids.numpy()),
    )
    rows = torch.searchsorted(ids, typical)
    return PreparedGraph(part, typical=rows, degree=csr.degree(ids)), ids

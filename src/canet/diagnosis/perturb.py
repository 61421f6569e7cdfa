"""Random changes of a graph: features of other nodes, rewired edges."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from canet.util.sparse import unique_edges

NUM_ROUNDS = 5  # of rewiring; in each round every edge has one chance to swap


def draw_donors(
    num_nodes: int, random: np.random.Generator, environment: np.ndarray | None = None
) -> np.ndarray:
    """Draw for each node another node $[N]$, the donor, whose values it gets.

    Without environments, the donors are a random cyclic permutation, so every column keeps its
    distribution. With two or more environments, a donor is drawn from another environment.
    """
    if environment is None or (environment == environment[0]).all():
        cycle = random.permutation(num_nodes)
        donors = np.empty(num_nodes, dtype=np.int64)
        donors[cycle] = np.roll(cycle, 1)
        return donors
    # Nodes are sorted by environment; donors come from before or after the node's environment.
    order = np.argsort(environment, kind="stable")
    _, number, sizes = np.unique(environment, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    others = num_nodes - sizes[number]
    place = np.minimum((random.random(num_nodes) * others).astype(np.int64), others - 1)
    place += np.where(place >= starts[number], sizes[number], 0)
    return np.asarray(order[place])


def rewire(
    edge_index: Tensor,
    graph: np.ndarray,
    random: np.random.Generator,
    undirected: bool = False,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Swap the sources of random pairs of edges $[2, E]$ within each graph, numbered in $[N]$.

    Returns the edges and their weights $[E]$, which stay with their target.
    Every node keeps its in-degree and out-degree. For an undirected graph, both directions of an
    edge are swapped together, at a random end. A swap that would create a self-loop or an existing
    edge is skipped, so the edges of a star do not change. Self-loops are kept.
    """
    source, target = edge_index.numpy().copy()
    if undirected:
        once = source <= target
        source, target = source[once], target[once]
        weight = None if weight is None else weight[torch.from_numpy(once)]
    no_loop = np.flatnonzero(source != target)

    def key(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        ends = (np.minimum(source, target), np.maximum(source, target)) if undirected else None
        first, second = ends or (source, target)
        return np.asarray(first * len(graph) + second)

    for _ in range(NUM_ROUNDS):
        if undirected:
            flip = random.random(source.size) < 0.5
            source, target = np.where(flip, (target, source), (source, target))
        order = random.permutation(no_loop)
        order = order[np.argsort(graph[source[order]], kind="stable")]
        pair = order[: order.size // 2 * 2].reshape(-1, 2)
        new_source, pair_target = source[pair[:, ::-1]], target[pair]
        keys = key(new_source, pair_target)
        ordered = np.sort(keys, axis=None)
        duplicates = ordered[1:][ordered[1:] == ordered[:-1]]
        taken = pa.array(np.concatenate([duplicates, key(source, target)]))
        free = ~pc.is_in(pa.array(keys.ravel()), taken).to_numpy(False).reshape(keys.shape)
        same_graph = graph[new_source] == graph[pair_target]
        valid = (free & (new_source != pair_target) & same_graph).all(axis=1)
        source[pair[valid]] = new_source[valid]
    edges = torch.from_numpy(np.stack([source, target]))
    return unique_edges(edges, len(graph), True, weight) if undirected else (edges, weight)

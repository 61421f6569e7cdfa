"""Changes of a graph: donors of features, other edges, no edges."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from canet.util.sparse import unique_edges

ROUNDS = 5  # in which each edge may be exchanged with another


def draw_donors(
    num_nodes: int, random: np.random.Generator, environment: np.ndarray | None = None
) -> np.ndarray:
    """For each node another one $[N]$ whose values it gets.

    Without environments all nodes are in one random cycle, so that each gives its values once
    and every column keeps its distribution. With two or more, the donor is drawn from the nodes of
    other environments.
    """
    if environment is None or (environment == environment[0]).all():
        cycle = random.permutation(num_nodes)
        donors = np.empty(num_nodes, dtype=np.int64)
        donors[cycle] = np.roll(cycle, 1)
        return donors
    # Sorted by environment, the nodes of one are a run: its donors are before or after it.
    order = np.argsort(environment, kind="stable")
    _, number, sizes = np.unique(environment, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    others = num_nodes - sizes[number]
    place = np.minimum((random.random(num_nodes) * others).astype(np.int64), others - 1)
    place += np.where(place >= starts[number], sizes[number], 0)
    return np.asarray(order[place])


def rewire(
    edge_index: Tensor, graph: np.ndarray, random: np.random.Generator, undirected: bool = False
) -> Tensor:
    """Edges $[2, E]$ that exchanged their sources in pairs, within the graphs numbered in $[N]$.

    Every node keeps the numbers of edges that it reads and that read it. Where a model reads edges
    both ways, each is exchanged once for both ways, at an end drawn at random. An exchange that
    would make a self-loop or an edge that exists is left out, so that an edge without a partner,
    such as those of a star, stays. Self-loops stay: they are the node itself.
    """
    source, target = edge_index.numpy().copy()
    if undirected:
        once = source <= target
        source, target = source[once], target[once]
    proper = np.flatnonzero(source != target)

    def key(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        ends = (np.minimum(source, target), np.maximum(source, target)) if undirected else None
        first, second = ends or (source, target)
        return np.asarray(first * len(graph) + second)

    for _ in range(ROUNDS):
        if undirected:
            turned = random.random(source.size) < 0.5
            source, target = np.where(turned, (target, source), (source, target))
        order = random.permutation(proper)
        order = order[np.argsort(graph[source[order]], kind="stable")]
        pair = order[: order.size // 2 * 2].reshape(-1, 2)
        read, by = source[pair[:, ::-1]], target[pair]
        made = key(read, by)
        ordered = np.sort(made, axis=None)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        taken = pa.array(np.concatenate([twice, key(source, target)]))
        new = ~pc.is_in(pa.array(made.ravel()), taken).to_numpy(False).reshape(made.shape)
        possible = (new & (read != by) & (graph[read] == graph[by])).all(axis=1)
        source[pair[possible]] = read[possible]
    edges = torch.from_numpy(np.stack([source, target]))
    return unique_edges(edges, len(graph), both_ways=True) if undirected else edges


def drop_edges(
    edge_index: Tensor, num_nodes: int, part: float, random: np.random.Generator
) -> Tensor:
    """Edges $[2, E']$ without a random part of the pairs of nodes that they join.

    An edge that is stored both ways is dropped both ways. Self-loops stay.
    """
    source, target = edge_index.numpy()
    pair = np.minimum(source, target) * num_nodes + np.maximum(source, target)
    _, number = np.unique(pair, return_inverse=True)
    kept = random.random(number.max(initial=-1) + 1) >= part
    return edge_index[:, torch.from_numpy(kept[number] | (source == target))]

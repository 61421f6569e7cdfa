"""Changes of a graph: features of other nodes, other edges, no edges."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

from canet.diagnosis.graph import Matrix


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


def replace_features(x: Matrix, donors: np.ndarray, columns: np.ndarray | None = None) -> Matrix:
    """Features $[N, D]$ whose `columns`, all where None, are those of the donors $[N]$."""
    if columns is None:
        return x[donors]
    if sp.issparse(x):
        taken = np.zeros(x.shape[1], dtype=x.dtype)
        taken[columns] = 1
        return (x @ sp.diags(1 - taken) + x[donors] @ sp.diags(taken)).tocsr()
    changed = x.copy()
    changed[:, columns] = x[donors][:, columns]
    return changed


def rewire(
    edge_index: Tensor, graph: np.ndarray, random: np.random.Generator, undirected: bool = False
) -> Tensor:
    """Edges $[2, E]$ whose sources are random nodes of the same graph, numbered in `graph` $[N]$.

    A node keeps the number of edges it reads. Where a model reads edges both ways, one end of each
    pair, drawn at random, is replaced for both ways. Self-loops stay: they are the node itself.
    """
    source, target = edge_index.numpy()
    if undirected:
        once = source <= target
        turned = random.random(once.sum()) < 0.5
        ends = source[once], target[once]
        source, target = np.where(turned, ends[::-1], ends)
    order = np.argsort(graph, kind="stable")
    _, number, sizes = np.unique(graph, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    size = sizes[number[target]]
    place = np.minimum((random.random(target.size) * size).astype(np.int64), size - 1)
    drawn = order[starts[number[target]] + place]
    edges = torch.from_numpy(np.stack([np.where(source == target, source, drawn), target]))
    return to_undirected(edges, num_nodes=len(graph)) if undirected else edges


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

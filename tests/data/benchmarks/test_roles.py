import networkx as nx
import numpy as np
import torch
from torch import Tensor

from canet.data.benchmarks.roles import degree_ranks, role_ranks

PAIRS = torch.tensor([[0, 1], [1, 2], [2, 0], [2, 3], [3, 4]])
"""A triangle 0-1-2 with a tail 2-3-4; node 5 is isolated."""
EDGES = torch.cat([PAIRS, PAIRS.flip(1)]).T


def ranks(*values: float) -> Tensor:
    """The share of lower values; equal values count half."""
    return torch.tensor([np.mean([(u < v) + (u == v) / 2 for u in values]) for v in values])


def test_columns_are_ranks_of_the_measures() -> None:
    x = role_ranks(EDGES, 6)
    expected = [
        ranks(2, 2, 3, 2, 1, 0),  # degree
        ranks(2.5, 2.5, 2, 2, 2, 0),  # mean degree of neighbours
        ranks(3, 3, 2, 3, 2, 0),  # their largest
        ranks(1, 1, 1 / 3, 0, 0, 0),  # clustering
        ranks(2, 2, 2, 1, 1, 0),  # core number
    ]
    assert x.shape == (6, 6)
    torch.testing.assert_close(x[:, :5], torch.stack(expected, dim=1).float())
    assert x[:, 5].argmax() == 2
    assert x[:, 5].argmin() == 5


def test_ranks_do_not_depend_on_the_order_of_the_nodes() -> None:
    graph = nx.gnm_random_graph(60, 150, seed=0)
    pairs = torch.tensor(list(graph.edges))
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    edges = torch.cat([pairs, pairs.flip(1)]).T
    torch.testing.assert_close(role_ranks(order[edges], 60)[order], role_ranks(edges, 60))


def test_degree_ranks_agree_with_a_loop() -> None:
    graph = nx.gnm_random_graph(200, 700, seed=1)
    pairs = torch.tensor(list(graph.edges))
    around = [[graph.degree[v] for v in graph[u]] or [0] for u in range(200)]
    expected = [
        ranks(*(graph.degree[u] for u in range(200))),
        ranks(*(np.mean(degrees) for degrees in around)),
        ranks(*(max(degrees) for degrees in around)),
    ]
    x = degree_ranks(torch.cat([pairs, pairs.flip(1)]).T, 200)
    torch.testing.assert_close(x, torch.stack(expected, dim=1).float())

"""Role features: ranks of structural measures, comparable between graphs of any size.

Each column is a rank: the share of nodes of the graph with a lower value, where ties count half. So
the features of a graph depend on that graph alone, and a column has the same range in all graphs.
"""

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_networkx, to_scipy_sparse_matrix


def degree_ranks(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return ranks $[n, 3]$ of the degree, and of the mean and maximum degree of the neighbours.

    Edges $[2, E]$ have both directions, without duplicates and self-loops.
    """
    adjacency = to_scipy_sparse_matrix(edge_index, num_nodes=num_nodes).tocsr()
    degree = np.diff(adjacency.indptr)
    mean = adjacency @ degree / np.maximum(degree, 1)
    largest = adjacency.multiply(degree).max(axis=1).toarray()[:, 0]
    return _ranks([degree, mean, largest])


def role_ranks(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return ranks $[n, 6]$: `degree_ranks`, clustering coefficient, core number and PageRank.

    Suitable for graphs of a few thousand nodes, because counting triangles is slow.
    """
    import networkx as nx  # type: ignore[import-untyped]  # torch requires it

    graph = to_networkx(Data(edge_index=edge_index, num_nodes=num_nodes), to_undirected=True)
    measures = nx.clustering(graph), nx.core_number(graph), nx.pagerank(graph)
    columns = [np.array([measure[node] for node in range(num_nodes)]) for measure in measures]
    return torch.cat([degree_ranks(edge_index, num_nodes), _ranks(columns)], dim=1)


def _ranks(columns: list[np.ndarray]) -> Tensor:
    """Return ranks between 0 and 1, $[n, D]$; values that differ only by rounding are ties."""
    table = np.stack(columns, axis=1).round(9)
    return torch.from_numpy((rankdata(table, axis=0) - 0.5) / len(table)).float()

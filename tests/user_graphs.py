"""Small user graphs for tests of fit and predict."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

NAMES = np.array(["ant", "bee", "cat"])


def small_user_graph(num_nodes: int = 60, seed: int = 0, sparse: bool = False) -> Data:
    """A graph whose three named classes depend on the features, with edges in both directions."""
    random = torch.Generator().manual_seed(seed)
    label = torch.arange(num_nodes) % 3
    x = torch.eye(3, 5)[label] + 0.3 * torch.rand(num_nodes, 5, generator=random)
    edges = torch.randint(num_nodes, (2, 2 * num_nodes), generator=random)
    return Data(
        x=x.to_sparse_csr() if sparse else x,
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=NAMES[label.numpy()],
        environment=np.array(["north", "south"])[np.arange(num_nodes) % 2],
    )

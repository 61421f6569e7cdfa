"""Small user graphs for tests of fit and predict."""

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


def rare_class_graph(
    n: int = 400, share: float = 0.1, strength: float = 2.0, seed: int = 0
) -> Data:
    """A rare class, `fraud`, that the first feature indicates."""
    random = np.random.default_rng(seed)
    rare = random.random(n) < share
    x = random.normal(size=(n, 4))
    x[:, 0] += strength * rare
    y = np.where(rare, "fraud", "ok")
    edges = random.integers(0, n, (2, 2 * n))
    return Data(
        x=torch.tensor(x, dtype=torch.float32), edge_index=torch.from_numpy(edges), y=y.tolist()
    )

"""What was read of a graph, except its features."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from canet.data.graph_files.encoding import Encoding


@dataclass
class GraphParts:
    """Numpy arrays as they were found.

    Args:
        num_nodes: N.
        edge_index: Rows of source and target nodes $[2, E]$.
        node_id: The user's ids $[N]$, integers or strings.
        columns: `y`, `environment`, `time` and `batch` $[N]$, those that there are.
        masks: `train_mask`, `val_mask` and `test_mask` $[N]$, if there is a split.
        dates: Whether times were written as dates; they are seconds since 1970.
    """

    num_nodes: int
    edge_index: np.ndarray
    node_id: np.ndarray
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    dates: bool = False

    def with_features(self, x: Tensor, encoding: Encoding | None) -> Data:
        """The graph with its features $[N, D]$ and how these were made."""
        data = Data(
            x=x,
            edge_index=torch.from_numpy(self.edge_index),
            num_nodes=self.num_nodes,
            node_id=self.node_id,
            **self.columns,
        )
        for name, mask in self.masks.items():
            data[name] = torch.from_numpy(mask)
        if encoding is not None:
            data.encoding = encoding
        return data

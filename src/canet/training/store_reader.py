"""Predictions of a trained method on a graph store, in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from canet.methods import Method
from canet.nn import Graph
from canet.nn.model import Prediction
from canet.training.feature_store import FeatureStore
from canet.training.inference import GraphReader, Part, check_finite
from canet.training.large_fields import CPU
from canet.training.pieces import Pieces
from canet.training.prepared import Prepared, PreparedStore

SMALL_SHARE = 0.01
"""For fewer of all nodes, only their neighbourhood is read from disk."""


class StoreReader:
    """A trained method on a graph store, with the interface of `GraphReader`.

    Args:
        method: The method; its device is used.
        prepared: The store.
        y: Its labels, or None.
    """

    def __init__(self, method: Method, prepared: PreparedStore, y: Any = None) -> None:
        self.method, self.user_graph, self.y = method, prepared.user_graph, y
        self._prepared = prepared
        self._device = method.model.phi_out.weight.device
        self._features = self._open(prepared.user_graph.x)
        self._graph(few=True)  # rejects models that need the whole graph

    def _open(self, x: Tensor) -> FeatureStore:
        return FeatureStore(x, self._device, self.method.settings.scaling)

    def _graph(self, few: bool) -> Graph:
        """Return the graph: for few nodes on disk."""
        return self._prepared.graph(self.method.model.operators, CPU if few else self._device)

    def parts(self, nodes: Tensor | None = None, x: Tensor | None = None) -> Iterator[Part]:
        """Predict as `read`, some nodes at a time: yield their rows in the result of `read`."""
        model = self.method.model
        features = self._features if x is None else self._open(x)
        wanted, order = (None, None) if nodes is None else nodes.sort(stable=True)
        ids = None if wanted is None else wanted.unique_consecutive()
        few = ids is not None and ids.numel() < SMALL_SHARE * self.user_graph.num_nodes
        pieces = Pieces(self._graph(few), model.num_layers, ids)
        for part, found in pieces.predict(model, features.rows):
            check_finite(found.logits)
            part = part.cpu()
            logits, embedding = found.logits.cpu(), found.representation.cpu()
            if wanted is None or order is None:
                yield part, Prediction(logits, embedding)
                continue
            ends = torch.stack([part[0], part[-1] + 1])
            first, last = torch.searchsorted(wanted, ends).tolist()
            chosen = torch.searchsorted(part, wanted[first:last])
            yield order[first:last], Prediction(logits[chosen], embedding[chosen])

    def read(self, nodes: Tensor | None = None, x: Tensor | None = None) -> Prediction:
        """Predict all nodes, or the nodes with ids $[n]$, without environments.

        Arguments as for `GraphReader.read`.
        """
        count = self.user_graph.num_nodes if nodes is None else nodes.numel()
        classes, width = self.method.model.phi_out.weight.shape
        logits, embedding = (torch.empty(count, m, dtype=torch.float) for m in (classes, width))
        for rows, found in self.parts(nodes, x):
            logits[rows], embedding[rows] = found.logits, found.representation
        return Prediction(logits, embedding)


def open_reader(method: Method, prepared: Prepared, y: Any = None) -> GraphReader | StoreReader:
    """Return the reader of a graph with labels `y`, in memory or on disk."""
    if isinstance(prepared, PreparedStore):
        return StoreReader(method, prepared, y)
    return GraphReader(method, prepared, y)

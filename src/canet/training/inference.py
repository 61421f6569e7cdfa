"""Predictions of a trained method on one graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from canet.data.graph import UserGraph
from canet.errors import InputError
from canet.methods import Method
from canet.nn import Features
from canet.nn.model import Prediction, rows_of
from canet.training.features import prepare_features
from canet.training.prepared import PreparedGraph

Part = tuple[Tensor, Prediction]
"""Predictions of some nodes, and their rows in the result of all."""


def check_finite(logits: Tensor) -> None:
    """Reject predictions that are not finite."""
    if not logits.isfinite().all():
        raise InputError(
            "the predictions are not finite, because features are far outside the range of the "
            "training data: scale them in the same way as for training"
        )


class GraphReader:
    """A trained method on one graph, which is normalised once for all predictions.

    Args:
        method: The method; its device is used.
        prepared: The training graph or another graph.
        y: Labels of the graph as passed by the user, or None.
    """

    def __init__(self, method: Method, prepared: PreparedGraph, y: Any = None) -> None:
        self.method, self.user_graph, self.y = method, prepared.user_graph, y
        self._feature_graph = prepared.user_graph.batch
        self._graph = prepared.graph(method.model.operators)

    @torch.no_grad()
    def read(self, nodes: Tensor | None = None, x: Tensor | None = None) -> Prediction:
        """Predict all nodes, or the nodes with ids $[n]$; logits and embedding are on the CPU.

        For some nodes, only their receptive field is computed. `x` $[N, D]$ replaces the features
        of the graph and is prepared in the same way.
        """
        model = self.method.model
        rows = self.features if x is None else self._prepared(x)
        if nodes is None:
            blocks = self._graph.whole(model.num_layers, self._device).blocks
        else:
            field = self._graph.receptive_field(nodes, model.num_layers)
            rows, blocks = rows_of(rows, field.nodes), field.to(self._device).blocks
        found = model(rows.to(self._device), blocks)
        check_finite(found.logits)
        return Prediction(found.logits.cpu(), found.embedding.cpu(), found.environments)

    def parts(self, nodes: Tensor | None = None) -> Iterator[Part]:
        """Yield the prediction of all nodes, or of the nodes with ids $[n]$, as one part."""
        found = self.read(nodes)
        yield torch.arange(len(found.logits)), found

    def with_edges(
        self, edge_index: Tensor, batch: Tensor, edge_weight: Tensor | None = None
    ) -> GraphReader:
        """Return a reader of the same nodes with other edges $[2, E]$ and graph numbers $[N]$.

        The preparation of the features still uses the previous graph numbers.
        """
        changed = UserGraph(self.user_graph.x, edge_index, batch, edge_weight)
        other = GraphReader(self.method, PreparedGraph(changed))
        other._feature_graph = self._feature_graph
        return other

    @property
    def _device(self) -> torch.device:
        return self.method.model.phi_out.weight.device

    @cached_property
    def features(self) -> Features:
        """The features of the graph, prepared for the model."""
        return self._prepared(self.user_graph.x)

    def _prepared(self, x: Tensor) -> Features:
        return prepare_features(x, self._feature_graph, self.method.settings.scaling)

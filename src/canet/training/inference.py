"""A trained method on a graph, which may be another one than that of its training."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from canet.data.user_graph import UserGraph
from canet.errors import InputError
from canet.methods import Method
from canet.nn import Features
from canet.nn.model import Prediction, rows_of
from canet.training.features import prepare_features
from canet.training.prepared import PreparedGraph


class GraphReader:
    """A trained method on one graph, which is normalised and sorted once for all passes.

    Args:
        method: The method; passes are made on its device.
        prepared: The graph.
        y: Its labels as the user gave them, where there are some.
    """

    def __init__(self, method: Method, prepared: PreparedGraph, y: Any = None) -> None:
        self.method, self.own, self.y = method, prepared.own, y
        self._graph_of_features = prepared.own.graph
        self._graph = prepared.graph(method.model.operators)

    @torch.no_grad()
    def read(self, nodes: Tensor | None = None, x: Tensor | None = None) -> Prediction:
        """A pass for some nodes $[n]$ by their ids, or for all; logits and embedding on the CPU.

        For some nodes only their receptive field is read. `x` $[N, D]$ replaces the features of
        the graph, and is prepared as they are: by statistics of all nodes of a graph.
        """
        model = self.method.model
        rows = self.features if x is None else self._prepared(x)
        if nodes is None:
            blocks = self._graph.whole(model.num_layers, self._device).blocks
        else:
            field = self._graph.receptive_field(nodes, model.num_layers)
            rows, blocks = rows_of(rows, field.nodes), field.to(self._device).blocks
        found = model(rows.to(self._device), blocks)
        if not found.logits.isfinite().all():
            raise InputError(
                "predictions are not finite: features are far outside the range of training; scale "
                "them as they were scaled there"
            )
        return Prediction(found.logits.cpu(), found.embedding.cpu(), found.environments)

    def with_edges(self, edge_index: Tensor, graph: Tensor) -> GraphReader:
        """The same nodes with other edges $[2, E]$, in graphs with these numbers $[N]$; features
        stay as they are.
        """
        other = GraphReader(self.method, PreparedGraph(UserGraph(self.own.x, edge_index, graph)))
        other._graph_of_features = self._graph_of_features
        return other

    @property
    def _device(self) -> torch.device:
        return self.method.model.phi_out.weight.device

    @cached_property
    def features(self) -> Features:
        """The features of the graph as the model reads them."""
        return self._prepared(self.own.x)

    def _prepared(self, x: Tensor) -> Features:
        return prepare_features(x, self._graph_of_features, self.method.settings.features)

"""A trained method on a graph that need not be the one of its training."""

from __future__ import annotations

import torch
from torch import Tensor

from canet.data.user_graph import UserGraph
from canet.errors import InputError
from canet.methods import Method
from canet.nn import Graph, SparseMatrix
from canet.nn.model import Prediction, rows_of


class GraphReader:
    """A trained method on one graph, whose matrices are made once.

    Args:
        method: The method; passes are made on its device.
        own: The graph.
    """

    def __init__(self, method: Method, own: UserGraph) -> None:
        self._model = method.model
        self._own = own
        self._graph = Graph(own.edge_index, own.num_nodes, self._model.operators, own.graph)

    @torch.no_grad()
    def read(self, nodes: Tensor | None = None, x: Tensor | None = None) -> Prediction:
        """A pass for some nodes $[n]$ by their ids, or for all; logits and embedding on the CPU.

        For some nodes only their receptive field is read. `x` $[N, D]$ stands in for the graph's
        own features.
        """
        model = self._model
        device = model.phi_out.weight.device
        field = self._graph.whole(model.num_layers)
        if nodes is not None:
            field = self._graph.receptive_field(nodes, model.num_layers)
        given = self._own.x if x is None else x
        rows = SparseMatrix.from_torch(given) if given.layout == torch.sparse_csr else given
        found = model(rows_of(rows, field.nodes).to(device), field.to(device).blocks)
        if not found.logits.isfinite().all():
            raise InputError(
                "predictions are not finite: features lie far beyond those of training; scale them "
                "as they were there"
            )
        return Prediction(found.logits.cpu(), found.embedding.cpu(), found.environments)


def forward(method: Method, own: UserGraph, nodes: Tensor | None = None) -> Prediction:
    """One pass over a graph; as :meth:`GraphReader.read`."""
    return GraphReader(method, own).read(nodes)

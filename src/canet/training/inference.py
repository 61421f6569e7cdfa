"""A trained method on a graph that need not be the one of its training."""

from __future__ import annotations

import torch
from torch import Tensor

from canet.data.own import OwnGraph
from canet.errors import InputError
from canet.methods import Method
from canet.nn import Graph, SparseMatrix
from canet.nn.model import Prediction, rows_of


@torch.no_grad()
def forward(method: Method, own: OwnGraph, nodes: Tensor | None = None) -> Prediction:
    """A pass for some nodes $[n]$ by their ids, or for all; logits and embedding on the CPU.

    For some nodes only their receptive field is read.
    """
    model = method.model
    device = model.phi_out.weight.device
    graph = Graph(own.edge_index, own.num_nodes, model.operators, own.graph)
    field = graph.whole(model.num_layers)
    if nodes is not None:
        field = graph.receptive_field(nodes, model.num_layers)
    x = SparseMatrix.from_torch(own.x) if own.x.layout == torch.sparse_csr else own.x
    found = model(rows_of(x, field.nodes).to(device), field.to(device).blocks)
    if not found.logits.isfinite().all():
        raise InputError(
            "predictions are not finite: features lie far beyond those of training; scale them as "
            "they were there"
        )
    return Prediction(found.logits.cpu(), found.embedding.cpu(), found.environments)

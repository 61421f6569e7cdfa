"""Predictions of a trained method on one graph, at once or in pieces."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from canet.errors import InputError
from canet.methods import Method
from canet.nn.model import Prediction, rows_of
from canet.reading.pieces import Pieces
from canet.reading.prepared import PreparedGraph
from canet.reading.scaling import CPU

Part = tuple[Tensor, Prediction]
"""Predictions of some nodes, and their rows in the result of all."""
SMALL_SHARE = 0.01
"""For fewer of all nodes, only their neighbourhood is read from disk."""


def read(
    method: Method, graph: PreparedGraph, nodes: Tensor | None = None, x: Tensor | None = None
) -> Prediction:
    """Predict all nodes, or the nodes with ids $[n]$; logits and embedding are on the CPU.

    For some nodes, only their receptive field is computed. A graph on disk is predicted in pieces,
    without environments. `x` $[N, D]$ replaces the features of the graph, and is scaled as these.
    """
    graph = graph if x is None else graph.with_features(x)
    if not graph.in_pieces:
        return _at_once(method, graph, nodes)
    count = graph.user_graph.num_nodes if nodes is None else nodes.numel()
    classes, width = method.model.phi_out.weight.shape
    logits, embedding = (torch.empty(count, m, dtype=torch.float) for m in (classes, width))
    for rows, found in _in_pieces(method, graph, nodes):
        logits[rows], embedding[rows] = found.logits, found.representation
    return Prediction(logits, embedding)


def read_parts(method: Method, graph: PreparedGraph, nodes: Tensor | None = None) -> Iterator[Part]:
    """Predict as `read`, some nodes at a time: yield their rows in the result of `read`."""
    if graph.in_pieces:
        yield from _in_pieces(method, graph, nodes)
    else:
        found = _at_once(method, graph, nodes)
        yield torch.arange(len(found.logits)), found


@torch.no_grad()
def _at_once(method: Method, prepared: PreparedGraph, nodes: Tensor | None) -> Prediction:
    model, device = method.model, method.model.phi_out.weight.device
    graph, rows = prepared.graph(model.operators), prepared.features(method.settings.scaling)
    if nodes is None:
        blocks = graph.whole(model.num_layers, device).blocks
    else:
        field = graph.receptive_field(nodes, model.num_layers)
        rows, blocks = rows_of(rows, field.nodes), field.to(device).blocks
    found = model(rows.to(device), blocks)
    _check_finite(found.logits)
    return Prediction(found.logits.cpu(), found.embedding.cpu(), found.environments)


def _in_pieces(method: Method, prepared: PreparedGraph, nodes: Tensor | None) -> Iterator[Part]:
    model, device = method.model, method.model.phi_out.weight.device
    wanted, order = (None, None) if nodes is None else nodes.sort(stable=True)
    ids = None if wanted is None else wanted.unique_consecutive()
    few = ids is not None and ids.numel() < SMALL_SHARE * prepared.user_graph.num_nodes
    # Sums over whole graphs need the graph on the CPU.
    on_cpu = few or any(operator.kind == "graph" for operator in model.operators)
    graph = prepared.graph(model.operators, CPU if on_cpu else device)
    rows = prepared.rows(method.settings.scaling, device).rows
    for part, found in Pieces(graph, model.num_layers, ids).predict(model, rows):
        _check_finite(found.logits)
        part = part.cpu()
        logits, embedding = found.logits.cpu(), found.representation.cpu()
        if wanted is None or order is None:
            yield part, Prediction(logits, embedding)
            continue
        ends = torch.stack([part[0], part[-1] + 1])
        first, last = torch.searchsorted(wanted, ends).tolist()
        chosen = torch.searchsorted(part, wanted[first:last])
        yield order[first:last], Prediction(logits[chosen], embedding[chosen])


def _check_finite(logits: Tensor) -> None:
    """Reject predictions that are not finite."""
    if not logits.isfinite().all():
        raise InputError(
            "the predictions are not finite, because features are far outside the range of the "
            "training data: scale them in the same way as for training"
        )

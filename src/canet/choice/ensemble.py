"""An ensemble: methods whose probabilities are averaged, and how it reads a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from canet.methods import Method
from canet.nn.model import Prediction
from canet.training.inference import GraphReader
from canet.training.prepared import PreparedGraph


class Ensemble(nn.Module):
    """Trained methods and the weight of each, which sum to one."""

    weights: Tensor

    def __init__(self, members: Sequence[Method], weights: Sequence[float]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.double))

    def combine(self, logits: Sequence[Tensor]) -> Tensor:
        r"""$\log \sum_m w_m\, \mathrm{softmax}(f_m)$ $[n, C]$ of each member's logits $[n, C]$."""
        parts = [f.double().log_softmax(dim=1) for f in logits]
        return (torch.stack(parts) + self.weights.log().view(-1, 1, 1)).logsumexp(dim=0).float()


class EnsembleReader:
    """An ensemble on one graph, as :class:`GraphReader` is a method on one."""

    def __init__(self, method: Ensemble, prepared: PreparedGraph, y: Any = None) -> None:
        self.method, self.own, self.y = method, prepared.own, y
        self._readers = [GraphReader(member, prepared) for member in method.members]

    @torch.no_grad()
    def read(self, nodes: Tensor | None = None, x: Tensor | None = None) -> Prediction:
        """A pass of every member; the embedding is theirs side by side, each of length one."""
        found = [reader.read(nodes, x) for reader in self._readers]
        units = [nn.functional.normalize(one.embedding, dim=1) for one in found]
        return Prediction(
            self.method.combine([one.logits for one in found]), torch.cat(units, dim=1)
        )

    def with_edges(self, edge_index: Tensor, graph: Tensor) -> EnsembleReader:
        """The same nodes with other edges $[2, E]$, in graphs with these numbers $[N]$."""
        other = EnsembleReader.__new__(EnsembleReader)
        other.method, other.own, other.y = self.method, self.own, self.y
        other._readers = [reader.with_edges(edge_index, graph) for reader in self._readers]
        return other

"""An ensemble of methods whose probabilities are averaged, and its predictions on a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from canet.methods import Method, get_method
from canet.nn.model import Prediction
from canet.settings import override
from canet.store.result import Candidate
from canet.training.inference import GraphReader, Part
from canet.training.prepared import Prepared
from canet.training.store_reader import StoreReader, open_reader


class Ensemble(nn.Module):
    """Trained methods and their weights, which sum to one."""

    members: Any  # a list of Method
    weights: Tensor

    def __init__(self, members: Sequence[Method], weights: Sequence[float]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.double))

    @classmethod
    def empty(cls, candidates: Sequence[Candidate], sizes: tuple[int, int, int]) -> Ensemble:
        """Return the ensemble of the candidates with a positive weight, on the meta device.

        `sizes` are the numbers of features, classes and environment labels.
        """
        chosen = [candidate for candidate in candidates if candidate.weight]
        with torch.device("meta"):
            members = []
            for one in chosen:
                method_type = get_method(one.method)
                settings = override(method_type.settings_type(), one.settings)
                members.append(method_type(settings, one.backbone, *sizes))
            return cls(members, [one.weight for one in chosen])

    @property
    def num_environment_labels(self) -> int:
        count: int = self.members[0].num_environment_labels
        return count

    def combine(self, logits: Sequence[Tensor]) -> Tensor:
        r"""Return $\log \sum_m w_m\, \mathrm{softmax}(f_m)$ for logits $f_m$ $[n, C]$."""
        parts = [f.double().log_softmax(dim=1) for f in logits]
        weights = self.weights.to(parts[0].device).log()
        return (torch.stack(parts) + weights.view(-1, 1, 1)).logsumexp(dim=0).float()


class EnsembleReader:
    """An ensemble on one graph, with the interface of :class:`GraphReader`."""

    def __init__(self, method: Ensemble, prepared: Prepared, y: Any = None) -> None:
        self.method, self.user_graph, self.y = method, prepared.user_graph, y
        self.readers = [open_reader(member, prepared) for member in method.members]

    def read(self, nodes: Tensor | None = None, x: Tensor | None = None) -> Prediction:
        """Predict with every member and combine the predictions."""
        return self.combine([reader.read(nodes, x) for reader in self.readers])

    def parts(self, nodes: Tensor | None = None) -> Iterator[Part]:
        """Predict as `read`, some nodes at a time; the parts of all members are the same."""
        for parts in zip(*(reader.parts(nodes) for reader in self.readers), strict=True):
            yield parts[0][0], self.combine([found for _, found in parts])

    def combine(self, found: Sequence[Prediction]) -> Prediction:
        """Average the probabilities, and concatenate the embeddings, each scaled to unit norm."""
        units = [nn.functional.normalize(one.embedding, dim=1) for one in found]
        logits = self.method.combine([one.logits for one in found])
        return Prediction(logits.cpu(), torch.cat(units, dim=1))


Reader: TypeAlias = GraphReader | StoreReader | EnsembleReader
"""A trained method or ensemble on one graph."""

"""An average of models, which is itself a model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from canet.data.task import ShiftTask
from canet.errors import VersionError
from canet.models.base import Fitted, State, entry, restore
from canet.models.replacing import Change, Replacing
from canet.nn.model import Prediction
from canet.reading.pieces import Piece
from canet.reading.prepared import PreparedGraph
from canet.store.tensors import prefixed, without_prefix


class Average(Fitted):
    """The weighted mean of the probabilities of some models.

    Args:
        members: The models.
        weights: Their weights, which sum to one.
    """

    kind = "average"

    def __init__(self, members: Sequence[Fitted], weights: Sequence[float]) -> None:
        self.members, self.weights = list(members), list(weights)
        self.num_hops = max((member.num_hops for member in self.members), default=0)

    def read(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Prediction:
        return self.combine([member.read(graph, nodes) for member in self.members])

    def parts(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Iterator[Piece]:
        """Predict some nodes at a time, if there are networks: their parts are the same."""
        networks = [member for member in self.members if member.in_parts]
        if not networks:
            yield from super().parts(graph, nodes)
            return
        whole = {id(m): m.read(graph, nodes) for m in self.members if not m.in_parts}
        for parts in zip(*(member.parts(graph, nodes) for member in networks), strict=True):
            rows, found = parts[0][0], {id(m): p for m, (_, p) in zip(networks, parts, strict=True)}
            found |= {key: Prediction(one.logits[rows]) for key, one in whole.items()}
            yield rows, self.combine([found[id(member)] for member in self.members])

    def replacing(self, graph: PreparedGraph, nodes: Tensor) -> Replacing:
        members = [member.replacing(graph, nodes) for member in self.members]

        def change_of(columns: np.ndarray) -> Change:
            changes = [member(columns) for member in members]
            return lambda donors: self.mean([change(donors) for change in changes])

        return change_of

    def logits(self, task: ShiftTask) -> dict[str, Tensor]:
        found = [member.logits(task) for member in self.members]
        return {split: self.mean([one[split] for one in found]) for split in task.scored()}

    def combine(self, found: Sequence[Prediction]) -> Prediction:
        """Average the probabilities, and join the representations, each scaled to unit norm."""
        units = [normalize(one.representation, dim=1) for one in found]
        return Prediction(self.mean([one.logits for one in found]), torch.cat(units, dim=1))

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        r"""Return $\log \sum_m w_m\, \mathrm{softmax}(f_m)$ for logits $f_m$ $[n, C]$."""
        parts = [f.double().log_softmax(dim=1) for f in logits]
        weights = torch.tensor(self.weights, dtype=torch.double).log()
        return (torch.stack(parts) + weights.view(-1, 1, 1)).logsumexp(dim=0).float()

    def state(self) -> State:
        states = [member.state() for member in self.members]
        tensors: dict[str, Tensor] = {}
        for i, (_, part) in enumerate(states):
            tensors |= prefixed(str(i), part)
        members = [about for about, _ in states]
        return {"kind": self.kind, "weights": self.weights, "members": members}, tensors

    @classmethod
    def restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        parts, weights = entry(about, "members", list), entry(about, "weights", list)
        is_share = all(isinstance(weight, float | int) and 0 < weight <= 1 for weight in weights)
        if not is_share or len(parts) != len(weights) or not parts:
            raise VersionError("the average of models needs a weight between 0 and 1 for each")
        members = [
            restore(entry({"members": one}, "members", dict), without_prefix(str(i), tensors))
            for i, one in enumerate(parts)
        ]
        sizes = {member.sizes for member in members} - {None}
        if len(sizes) > 1:
            raise VersionError("the models of the average have different numbers of classes")
        average = cls(members, weights)
        average.sizes = next(iter(sizes), None)
        return average

    def to(self, device: torch.device) -> Self:
        for member in self.members:
            member.to(device)
        return self

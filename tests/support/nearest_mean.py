"""A learner that is not a network: the class with the nearest mean of the features."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.methods import Traits
from canet.models import Fitted, Learner
from canet.nn.model import Prediction
from canet.reading.prepared import PreparedGraph
from canet.util.colour import Colour
from canet.util.sparse import select_rows


class FittedMeans(Fitted):
    kind = "nearest mean"

    def __init__(self, means: Tensor, scale: float) -> None:
        self.means, self.scale = means, scale

    def read(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Prediction:
        rows = graph.data.x
        rows = rows if nodes is None else select_rows(rows, nodes)
        return Prediction(-self.scale * torch.cdist(rows.to_dense(), self.means))

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {"kind": self.kind, "scale": self.scale}, {"means": self.means}

    @classmethod
    def restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        return cls(tensors["means"], about["scale"])


class NearestMean(Learner):
    """Predicts from the distances to the means of the classes."""

    name = "nearest-mean"
    label = "Nearest mean"
    colour = Colour("#123456", "#abcdef")
    summary = "the class with the nearest mean"
    paper = "none"
    traits = Traits(uses_edge_weights=False, on_cpu=True)

    def fit(self, task: ShiftTask, seed: int = 0, **_: Any) -> Fitted:
        x, y = select_rows(task.data.x, task.train).to_dense(), task.data.y[task.train]
        means = [x[y == c].mean(dim=0) for c in range(task.num_classes)]
        return FittedMeans(torch.stack(means), 2.0)

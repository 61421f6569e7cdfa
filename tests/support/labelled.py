"""A small graph whose training nodes have environment labels."""

from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from canet.methods import Batch, Method
from canet.nn import NormalisedGraph

N = 10
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 9], [1, 2, 3, 4, 5, 0, 7, 8, 6, 6, 2]])
TRAIN = torch.tensor([4, 0, 2, 7, 6, 9, 1])
Y = torch.tensor([1, 0, 1, 1, 0, 0, 1])
ENVIRONMENT = torch.tensor([0, 2, 1, 0, 1, 2, 0])

M = TypeVar("M", bound=Method)


def make(
    kind: type[M],
    backbone: Any = "gcn",
    environment: Tensor = ENVIRONMENT,
    order: Tensor | None = None,
    **settings: Any,
) -> tuple[M, Batch]:
    """A method in training mode without dropout, in double precision, and seven of ten nodes.

    Weights and features are the same at each call. `order` permutes the nodes of the batch.
    """
    torch.manual_seed(0)
    chosen = {"hidden": 4, "dropout": 0.0, **settings}
    labels = int(environment.max()) + 1
    method = kind(kind.settings_type(**chosen), backbone, 5, 2, labels).double()
    x = torch.randn(N, 5, dtype=torch.double)
    order = torch.arange(len(TRAIN)) if order is None else order
    graph = NormalisedGraph(EDGES, N, method.model.operators)
    field = graph.receptive_field(TRAIN[order], method.model.num_layers).to("cpu", torch.double)
    return method, Batch(x[field.nodes], field.blocks, Y[order], environment[order])


def predict_by_hand(
    method: Method, monkeypatch: pytest.MonkeyPatch, logits: list[list[float]]
) -> None:
    """Make a method always predict these logits."""
    fixed = torch.tensor(logits, dtype=torch.double)
    monkeypatch.setattr(method, "predict", lambda batch: fixed)

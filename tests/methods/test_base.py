import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from canet.errors import CanetError
from canet.methods import METHODS
from canet.methods.erm import ERM
from canet.methods.irm import IRM
from canet.models import Trainer
from canet.nn import CaNet, GraphModel
from canet.nn.backbones import ResidualModel
from tests.support.labelled import make
from tests.support.tiny import tiny_task

LOGITS = [[0.5, -1.0], [2.0, 0.25], [0.0, 0.0], [-3.0, 1.0]]
LABELS = [0, 1, 1, 0]
WEIGHTS = [0.5, 3.0]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def cross_entropy(logits: list[float], label: int) -> float:
    return math.log(sum(math.exp(value) for value in logits)) - logits[label]


def binary_cross_entropy(logits: list[float], label: int) -> float:
    right = [sigmoid(z) if c == label else 1 - sigmoid(z) for c, z in enumerate(logits)]
    return -sum(math.log(p) for p in right) / len(logits)


def with_class_weight(weights: list[float] | None, loss: str = "cross_entropy") -> ERM:
    given = None if weights is None else torch.tensor(weights)
    return ERM(ERM.settings_type(hidden=4, loss=loss), "gcn", 5, 2, class_weight=given)


def trained(name: str, weights: list[float] | None) -> dict[str, Tensor]:
    """Parameters after three epochs."""
    given = None if weights is None else torch.tensor(weights)
    settings = METHODS[name].settings_type(hidden=4, epochs=3)
    trainer = Trainer(tiny_task(), name, "gcn", settings, "cpu", class_weight=given)
    return trainer.run(0).method.state_dict()


def test_environment_risks_are_the_mean_losses_of_each_environment() -> None:
    method, _ = make(IRM)
    losses = torch.tensor([1.0, 2.0, 3.0, 5.0, 7.0, 8.0], dtype=torch.double)
    risks = method.environment_risks(losses, torch.tensor([2, 0, 2, 1, 0, 0]))
    assert risks.tolist() == pytest.approx([17 / 3, 5, 2])


@pytest.mark.parametrize(
    ("loss", "by_hand"),
    [("cross_entropy", cross_entropy), ("binary_cross_entropy", binary_cross_entropy)],
)
def test_loss_of_a_node_is_multiplied_with_the_weight_of_its_class(loss: str, by_hand: Any) -> None:
    logits, y = torch.tensor(LOGITS, dtype=torch.double), torch.tensor(LABELS)
    method = with_class_weight(WEIGHTS, loss).double()
    expected = [WEIGHTS[c] * by_hand(z, c) for z, c in zip(LOGITS, LABELS, strict=True)]
    assert method.node_losses(logits, y).tolist() == pytest.approx(expected)


def test_without_class_weights_losses_keep_their_bits() -> None:
    logits, y = torch.tensor(LOGITS), torch.tensor(LABELS)
    plain = F.cross_entropy(logits, y, reduction="none")
    assert with_class_weight(None).node_losses(logits, y).equal(plain)
    assert with_class_weight([1.0, 1.0]).node_losses(logits, y).equal(plain)


def test_class_weights_follow_the_device_and_are_not_saved() -> None:
    method = with_class_weight(WEIGHTS).double()
    assert method.class_weight is not None
    assert method.class_weight.dtype == torch.double
    plain = with_class_weight(None)
    assert method.state_dict().keys() == plain.state_dict().keys()
    plain.load_state_dict(method.state_dict())


@pytest.mark.parametrize("name", METHODS)
def test_class_weights_reach_the_training_of_every_method(name: str) -> None:
    plain, ones, weighted = (trained(name, w) for w in (None, [1.0, 1, 1], [9.0, 1, 1]))
    assert all(plain[key].equal(ones[key]) for key in plain)
    assert not all(plain[key].equal(weighted[key]) for key in plain)


def test_class_weights_are_part_of_the_data_digest(tmp_path: Path) -> None:
    def run(weights: list[float] | None) -> Any:
        tensor = None if weights is None else torch.tensor(weights)
        how = {"device": "cpu", "epochs": 1, "class_weight": tensor}
        return Trainer(tiny_task(), "erm", **how).run(0, tmp_path / "run")

    assert run([1.0, 2.0, 3.0]).result == run([1.0, 2.0, 3.0]).result
    for others in ([1.0, 2.0, 4.0], None):
        with pytest.raises(CanetError, match="other labels"):
            run(others)


@pytest.mark.parametrize("name", METHODS)
def test_settings_reach_the_model_of_every_method(name: str) -> None:
    def model(**options: Any) -> GraphModel:
        settings = METHODS[name].settings_type(hidden=4, **options)
        return METHODS[name](settings, "gcn", 5, 3, 2).model

    assert not model().norms
    assert len(model(norm="layer", residual=True).norms) == 2
    assert isinstance(model(residual=True), CaNet if name == "canet" else ResidualModel)
    other = model(num_layers=3, dropout=0.4, direction="against")
    assert (other.num_layers, other.dropout, other.hidden) == (3, 0.4, 4)
    assert {operator.direction for operator in other.operators} == {"against"}


def test_the_loss_of_erm_is_the_mean_over_the_nodes() -> None:
    method, batch = make(ERM)
    losses = method.node_losses(method.predict(batch), batch.y)
    assert losses.shape == batch.y.shape
    assert method.loss(batch).equal(losses.mean())

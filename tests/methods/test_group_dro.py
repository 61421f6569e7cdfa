import math

import pytest
import torch

from canet.methods import Batch
from canet.methods.group_dro import GroupDRO
from tests.support.labelled import make, predict_by_hand

LN2 = math.log(2)


def two_risks(monkeypatch: pytest.MonkeyPatch, eta: float) -> tuple[GroupDRO, Batch]:
    """A method that always has the risks ln 2 and ln 4."""
    environment = torch.tensor([0, 1, 0, 0, 1, 1, 0])
    method, batch = make(GroupDRO, environment=environment, eta=eta)
    predict_by_hand(method, monkeypatch, [[0.0, 0.0], [0.0, math.log(3)], [1.0, 1.0]])
    return method, Batch(batch.x, batch.blocks, torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]))


def test_weights_and_losses_of_two_steps_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """With η = 1 each step multiplies the weights by 2 and by 4."""
    method, batch = two_risks(monkeypatch, eta=1.0)
    assert method.q.tolist() == [0.5, 0.5]
    assert method.loss(batch).item() == pytest.approx(LN2 * (1 + 2 * 2) / 3)
    assert method.q.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert method.loss(batch).item() == pytest.approx(LN2 * (1 + 4 * 2) / 5)
    assert method.q.tolist() == pytest.approx([1 / 5, 4 / 5])


def test_step_size_scales_the_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = two_risks(monkeypatch, eta=0.5)
    method.loss(batch)
    raised = [math.sqrt(2), 2]
    assert method.q.tolist() == pytest.approx([v / sum(raised) for v in raised])


def test_weights_move_only_in_training_and_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = two_risks(monkeypatch, eta=1.0)
    method.eval()
    assert method.loss(batch).item() == pytest.approx(1.5 * LN2)
    assert method.q.tolist() == [0.5, 0.5]
    method.train().loss(batch)
    assert method.state_dict()["q"].tolist() == pytest.approx([1 / 3, 2 / 3])

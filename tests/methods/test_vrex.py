import math

import pytest
import torch

from canet.methods import Batch
from canet.methods.vrex import VREx
from tests.support.labelled import make, predict_by_hand

LN2 = math.log(2)


def test_loss_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Risks ln 2 and ln 4: their mean is 3/2 ln 2, their variance (1/2 ln 2)²."""
    method, batch = make(VREx, penalty_weight=10.0, anneal_steps=1)
    method.num_environment_labels = 2
    predict_by_hand(method, monkeypatch, [[0.0, 0.0], [0.0, math.log(3)], [1.0, 1.0]])
    batch = Batch(batch.x, batch.blocks, torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]))
    assert method.loss(batch).item() == pytest.approx(1.5 * LN2 + 0.25 * LN2**2)
    assert method.loss(batch).item() == pytest.approx(1.5 * LN2 + 10 * 0.25 * LN2**2)

import pytest
import torch
from torch import Tensor

from canet.methods.irm import IRM
from tests.support.labelled import ENVIRONMENT, Y, make


def risk(method: IRM, logits: Tensor, environment: int) -> float:
    inside = environment == ENVIRONMENT
    return method.node_losses(logits[inside], Y[inside]).mean().item()


def test_slopes_by_hand() -> None:
    """The slope of cross-entropy at w = 1 is the expected logit minus that of the label."""
    method, _ = make(IRM)
    logits = torch.tensor([[2.0, 0.0], [0.0, 0.0], [1.0, 3.0]], dtype=torch.double)
    y, environment = torch.tensor([0, 1, 0]), torch.tensor([0, 1, 2])
    p = 1 / (1 + torch.tensor(-2.0).exp().item())
    _, slopes = method.risks_and_slopes(logits, y, environment)
    assert slopes.tolist() == pytest.approx([2 * p - 2, 0, (1 - p) + 3 * p - 1])
    method.num_environment_labels = 2
    _, slopes = method.risks_and_slopes(logits, y, torch.tensor([0, 0, 1]))
    assert slopes.tolist() == pytest.approx([p - 1, 2 * p])


@pytest.mark.parametrize("loss", ["cross_entropy", "binary_cross_entropy"])
def test_slopes_are_finite_differences_of_the_risks_of_scaled_logits(loss: str) -> None:
    method, batch = make(IRM, loss=loss)
    logits = 3 * method.predict(batch).detach()
    risks, slopes = method.risks_and_slopes(logits, batch.y, batch.environment)
    h = 1e-5
    for e in range(3):
        assert risks[e].item() == pytest.approx(risk(method, logits, e))
        difference = risk(method, (1 + h) * logits, e) - risk(method, (1 - h) * logits, e)
        assert slopes[e].item() == pytest.approx(difference / (2 * h), rel=1e-6)


def test_loss_is_the_mean_risk_and_the_weighted_mean_squared_slope() -> None:
    method, batch = make(IRM, penalty_weight=7.0, anneal_steps=1)
    risks, slopes = method.risks_and_slopes(method.predict(batch), batch.y, batch.environment)
    r, s = sum(risks.tolist()) / 3, sum(v * v for v in slopes.tolist()) / 3
    assert method.loss(batch).item() == pytest.approx(r + s)
    assert method.loss(batch).item() == pytest.approx(r + 7 * s)

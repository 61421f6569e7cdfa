import pytest
import torch

from canet.methods.irm import IRM

from .labelled import make


def test_environment_risks_are_the_mean_losses_of_each_environment() -> None:
    method, _ = make(IRM)
    losses = torch.tensor([1.0, 2.0, 3.0, 5.0, 7.0, 8.0], dtype=torch.double)
    risks = method.environment_risks(losses, torch.tensor([2, 0, 2, 1, 0, 0]))
    assert risks.tolist() == pytest.approx([17 / 3, 5, 2])


def test_gradient_of_a_risk_is_one_over_the_size_of_its_environment() -> None:
    method, _ = make(IRM)
    losses = torch.zeros(5, dtype=torch.double, requires_grad=True)
    method.environment_risks(losses, torch.tensor([0, 1, 2, 0, 0]))[0].backward()
    assert losses.grad is not None
    assert losses.grad.tolist() == pytest.approx([1 / 3, 0, 0, 1 / 3, 1 / 3])

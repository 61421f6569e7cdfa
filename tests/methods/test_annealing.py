import pytest
import torch

from canet.methods.annealing import AnnealedPenalty

RISK, PENALTY = torch.tensor(2.0), torch.tensor(3.0)


def test_weight_is_one_for_the_first_updates_and_then_its_own() -> None:
    annealed = AnnealedPenalty(weight=10.0, steps=2)
    assert [annealed(RISK, PENALTY).item() for _ in range(4)] == [5.0, 5.0, 32.0, 32.0]


def test_without_annealing_the_weight_is_used_at_once() -> None:
    assert AnnealedPenalty(weight=0.5, steps=0)(RISK, PENALTY).item() == 3.5


def test_only_training_counts() -> None:
    annealed = AnnealedPenalty(weight=10.0, steps=1).eval()
    assert [annealed(RISK, PENALTY).item() for _ in range(3)] == [5.0] * 3
    annealed.train()
    assert [annealed(RISK, PENALTY).item() for _ in range(2)] == [5.0, 32.0]


def test_restored_count_continues() -> None:
    first, second = AnnealedPenalty(10.0, 3), AnnealedPenalty(10.0, 3)
    for _ in range(2):
        first(RISK, PENALTY)
    second.load_state_dict(first.state_dict())
    assert [second(RISK, PENALTY).item() for _ in range(2)] == [5.0, 32.0]


@pytest.mark.parametrize(("steps", "expected"), [(1, 1.0), (0, 10.0)])
def test_gradient_of_the_penalty_has_the_weight_of_the_step(steps: int, expected: float) -> None:
    penalty = PENALTY.clone().requires_grad_()
    AnnealedPenalty(10.0, steps)(RISK, penalty).backward()
    assert penalty.grad is not None
    assert penalty.grad.item() == expected

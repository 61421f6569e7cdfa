import math
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from canet.methods import BACKBONES
from canet.methods.dann import DANN, DANNSettings, reverse
from canet.models import Trainer
from tests.support.labelled import ENVIRONMENT, make
from tests.support.tiny import tiny_task
from tests.support.trainers import run_until


def schedule(p: float) -> float:
    return 2 / (1 + math.exp(-10 * p)) - 1


def test_reversal_keeps_values_and_reverses_and_scales_the_gradient() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y = reverse(x, torch.tensor(0.25))
    assert y.tolist() == [1.0, -2.0]
    (y * torch.tensor([4.0, 8.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-1.0, -2.0]


def test_strength_follows_the_papers_schedule_over_the_epochs() -> None:
    method, batch = make(DANN, epochs=4, reversal=2.0)
    for p in (0, 0.25, 0.5, 0.75, 1):
        assert method.strength().item() == pytest.approx(2 * schedule(p))
        method.loss(batch)
    assert schedule(0) == 0
    assert schedule(1) == pytest.approx(1, abs=1e-4)


class Recorded(DANN):
    """DANN that records the progress of every update."""

    seen: ClassVar[list[float]] = []

    def strength(self) -> Tensor:
        strength = super().strength()
        self.seen.append(math.atanh(strength.item() / self.settings.reversal) / 5)
        return strength


@pytest.mark.parametrize(("batch_size", "steps"), [(0, 1), (8, 2), (5, 4)])
def test_progress_in_batches_ends_with_the_last_epoch_also_of_a_resumed_run(
    batch_size: int, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorded, "seen", [])
    settings = DANNSettings(hidden=4, epochs=4, batch_size=batch_size)
    trainer = Trainer(tiny_task(), Recorded, "gcn", settings, "cpu")
    run_until(3, tmp_path, trainer)
    trainer.run(folder=tmp_path)  # from the checkpoint after the second epoch
    updates = [*range(3 * steps), *range(2 * steps, 4 * steps)]
    expected = [update / (4 * steps) for update in updates]
    assert Recorded.seen == pytest.approx(expected, abs=1e-4)


def test_only_training_updates_the_count_and_it_is_saved() -> None:
    method, batch = make(DANN)
    method.eval().loss(batch)
    assert method.state_dict()["updates"].item() == 0
    method.train().loss(batch)
    assert method.state_dict()["updates"].item() == 1


@pytest.mark.parametrize("backbone", BACKBONES)
def test_discriminator_minimises_and_the_model_maximises_its_loss(backbone: Any) -> None:
    method, batch = make(DANN, backbone, epochs=10, reversal=1.0)
    method.updates += 3
    strength = schedule(0.3)
    prediction = method.model(batch.x, batch.blocks)
    supervised = method.node_losses(prediction.logits, batch.y).mean()
    guess = F.cross_entropy(method.discriminator(prediction.embedding), ENVIRONMENT)
    loss = method.loss(batch)
    assert loss.item() == pytest.approx((supervised + guess).item())

    inner = method.model.phi_in.weight
    own = torch.autograd.grad(supervised, inner, retain_graph=True)[0]
    adverse = torch.autograd.grad(guess, inner, retain_graph=True)[0]
    assert (adverse != 0).any()
    ours = torch.autograd.grad(loss, inner, retain_graph=True)[0]
    torch.testing.assert_close(ours, own - strength * adverse, rtol=1e-6, atol=1e-9)

    for parameter in method.discriminator.parameters():
        expected = torch.autograd.grad(guess, parameter, retain_graph=True)[0]
        torch.testing.assert_close(
            torch.autograd.grad(loss, parameter, retain_graph=True)[0], expected
        )

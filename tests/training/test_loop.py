"""The training loop: captured epochs, and several runs on a GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from canet.methods import BACKBONES, METHODS, Traits
from canet.models import Fitted, Run, Trainer
from canet.training import loop
from tests.support.gpu import needs_gpu
from tests.support.tiny import tiny_task
from tests.support.trainers import make as new_trainer
from tests.support.trainers import run_until


def make(
    name: str = "canet", backbone: str = "gcn", device: str = "cuda", **changes: Any
) -> Trainer:
    return new_trainer(None, name, backbone, device, **changes)


def assert_same(first: Run | Fitted, second: Run | Fitted) -> None:
    one, two = (
        found.training.history if isinstance(found, Fitted) else found.history
        for found in (first, second)
    )
    for name, curve in one.items():
        assert curve == pytest.approx(two[name], rel=1e-5, nan_ok=True)
    other = second.method.state_dict()
    for name, tensor in first.method.state_dict().items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [n for n, method in METHODS.items() if method.traits.capturable])
def test_compiling_kernels_does_not_change_the_run(name: str) -> None:
    trainer = make(name, device="cpu")
    own = trainer.learner._loop(trainer.task, 0, False, 0, None)
    state = own.method.state_dict() | own.method.training_state()
    before = {key: tensor.clone() for key, tensor in state.items()}
    with loop.unchanged(own):
        for _ in range(3):
            own.method.loss(own.method.intervene(own.batch)).backward()
    assert all(tensor.equal(before[key]) for key, tensor in state.items())
    assert all(parameter.grad is None for parameter in own.method.parameters())


@needs_gpu
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", [n for n, method in METHODS.items() if method.traits.capturable])
def test_captured_epochs_equal_eager_epochs(
    name: str, backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = make(name, backbone).run(1)
    monkeypatch.setattr(METHODS[name], "traits", Traits())
    assert_same(recorded, make(name, backbone).run(1))


@needs_gpu
@pytest.mark.parametrize("name", ["erm", "canet"])
def test_captured_epochs_with_all_settings_equal_eager_epochs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"scaling": "standardised", "norm": "layer", "residual": True}
    recorded = make(name, **settings).run(1)
    monkeypatch.setattr(METHODS[name], "traits", Traits())
    assert_same(recorded, make(name, **settings).run(1))


@needs_gpu
@pytest.mark.parametrize("metric", ["roc_auc", "macro_f1"])
def test_every_metric_can_be_recorded(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = tiny_task(num_classes=2, metric=metric)
    settings = METHODS["erm"].settings_type(hidden=8, epochs=12)
    recorded = Trainer(task, "erm", "gcn", settings, "cuda").run(0, ood_curves=True)
    monkeypatch.setattr(METHODS["erm"], "traits", Traits())
    assert_same(recorded, Trainer(task, "erm", "gcn", settings, "cuda").run(0, ood_curves=True))


@needs_gpu
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": 5, "fanout": "3,2"},
        {"batch_size": 5, "fanout": "-1,2"},
        {"fanout": "3,2"},
    ],
    ids=str,
)
def test_runs_trained_together_equal_single_runs(changes: dict[str, Any]) -> None:
    trainer = make(**changes)
    for seed, run in enumerate(trainer.learner.run(trainer.task, dict.fromkeys(range(3)))):
        assert run.training.runs_at_once == run.result.runs_at_once == 3
        assert_same(run, trainer.learner.run(trainer.task, {seed: None})[0])


@needs_gpu
def test_captured_run_resumes_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make().run(0)
    monkeypatch.setattr(loop, "EPOCHS_BETWEEN_CHECKS", 4)
    run_until(8, tmp_path, make())
    assert_same(whole, make().run(0, tmp_path))


def test_seeds_together_on_a_cpu_are_the_runs_of_each(tmp_path: Path) -> None:
    trainer = make(device="cpu")
    assert not trainer.learner.together
    alone = [trainer.run(seed) for seed in (0, 1)]
    folders = {seed: tmp_path / str(seed) for seed in (0, 1)}
    for again in range(2):
        for run, expected in zip(trainer.learner.run(trainer.task, folders), alone, strict=True):
            assert run.training.history == expected.history
        assert again or all((path / "done").exists() for path in folders.values())

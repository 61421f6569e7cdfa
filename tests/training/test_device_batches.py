"""Batches that a GPU draws by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from canet.methods import METHODS
from canet.training import Trainer, device_batches
from canet.training.device_batches import DeviceBatches, DeviceData, epoch_order
from canet.training.epochs import BatchEpochs
from tests.training.tiny import tiny_task

SETTINGS: dict[str, Any] = {"epochs": 6, "dropout": 0.0, "batch_size": 5, "fanout": "3,2"}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def make(method: str, device: str, **settings: Any) -> Trainer:
    kind = METHODS[method].settings_type
    chosen = kind(hidden=8, learning_rate=0.02, **SETTINGS | settings)
    return Trainer(tiny_task(), method, "gcn", chosen, device)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records which of the two kinds of steps trains."""
    found: list[str] = []
    for kind, name in ((DeviceBatches, "train"), (BatchEpochs, "__call__")):
        original = getattr(kind, name)

        def record(self: Any, *arguments: Any, original: Any = original) -> Any:
            found.append(type(self).__name__)
            return original(self, *arguments)

        monkeypatch.setattr(kind, name, record)
    return found


@needs_gpu
@pytest.mark.parametrize("method", ["erm", "irm", "group_dro", "canet"])
def test_captured_steps_have_the_losses_of_the_cpu(method: str, steps: list[str]) -> None:
    settings = {"tau": 1e6} if method == "canet" else {}  # hardly any noise
    cpu, gpu = (make(method, device, **settings).run() for device in ("cpu", "cuda"))
    assert steps[-1] == "DeviceBatches"
    assert np.allclose(cpu.history["loss"], gpu.history["loss"], atol=1e-3)
    again = make(method, "cuda", **settings).run()
    assert again.history == gpu.history


@needs_gpu
def test_too_few_places_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_batches, "SPARE", 0.5)
    monkeypatch.setattr(device_batches, "MULTIPLE", 1)
    trainer = make("erm", "cuda")
    data = trainer.fields.device_data((3, 2))
    assert isinstance(data, DeviceData)
    steps = DeviceBatches(data, trainer.fields.nodes["train"].cuda(), 5, (3, 2))
    small = steps._capacity
    monkeypatch.setattr(device_batches, "SPARE", 2.0)
    method = trainer._new_method().cuda()
    optimizer = torch.optim.Adam(method.parameters(), lr=0.01, capturable=True)
    assert torch.isfinite(steps.train(method, optimizer, 0))
    assert all(now > before for now, before in zip(steps._capacity, small, strict=True))


@needs_gpu
@pytest.mark.parametrize("settings", [{"fanout": "-1,2"}, {"batch_size": 0}])
def test_other_batches_are_not_captured(settings: dict[str, Any], steps: list[str]) -> None:
    make("erm", "cuda", **settings).run()
    assert "DeviceBatches" not in steps


def test_the_order_of_an_epoch_follows_from_its_seed() -> None:
    (order, seed), (same, same_seed), (other, other_seed) = (epoch_order(9, s) for s in (1, 1, 2))
    assert torch.equal(order, same)
    assert seed == same_seed
    assert not torch.equal(order, other)
    assert seed != other_seed
    assert order.sort().values.tolist() == list(range(9))

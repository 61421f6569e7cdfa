"""Batches that a GPU draws by itself."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from canet.models import Trainer
from canet.nn.operations import fused
from canet.reading import prepared, rows
from canet.reading.prepared import task_graph
from canet.training import device_batches
from canet.training.device_batches import DeviceBatches, DeviceData, epoch_order, epoch_seed
from canet.training.epochs import BatchEpochs
from tests.support.gpu import needs_gpu
from tests.support.trainers import make as new_trainer

SETTINGS: dict[str, Any] = {"epochs": 6, "dropout": 0.0, "batch_size": 5, "fanout": "3,2"}


def make(method: str, device: str, **settings: Any) -> Trainer:
    return new_trainer(None, method, device=device, **SETTINGS | settings)


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


@pytest.mark.skipif(not fused.HAS_TRITON, reason="no Triton")
@pytest.mark.skipif(torch.cuda.is_available(), reason="captured steps are tested instead")
def test_padded_steps_have_the_losses_of_other_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, nothing is captured, and Triton's interpreter runs the kernels."""
    trainer = make("erm", "cpu")
    nodes, optimizers = trainer.fields.nodes["train"], []
    for _ in range(2):
        torch.manual_seed(0)
        method = trainer.learner.new_method(trainer.task)
        optimizers.append((method, torch.optim.Adam(method.parameters(), lr=0.02)))
    batches = partial(trainer.fields.training_batches, 5, (3, 2), 0)
    expected = [float(BatchEpochs(batches, 0)(*optimizers[0], epoch)) for epoch in range(2)]
    monkeypatch.setattr(fused, "on_gpu", lambda tensor: True)
    monkeypatch.setattr(device_batches, "STEPS_BEFORE_CAPTURE", 10**9)
    own = trainer.fields.of("train")
    data = DeviceData(own.on(), own.reader.rows, trainer.task.data.y)
    steps = DeviceBatches(data, nodes, 5, (3, 2))
    found = [float(steps.train(*optimizers[1], epoch_seed(0, epoch))) for epoch in range(2)]
    assert found == pytest.approx(expected, abs=1e-5)


@needs_gpu
@pytest.mark.parametrize("method", ["erm", "irm", "coral", "dann", "group_dro", "canet"])
def test_captured_steps_have_the_losses_of_the_cpu(
    method: str, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canet.models.network.fast_products", lambda device: nullcontext())
    settings = {"tau": 1e6} if method == "canet" else {}  # hardly any noise
    cpu, gpu = (make(method, device, **settings).run() for device in ("cpu", "cuda"))
    assert steps[-1] == "DeviceBatches"
    assert np.allclose(cpu.history["loss"], gpu.history["loss"], atol=1e-3)
    again = make(method, "cuda", **settings).run()
    assert again.history == gpu.history


@needs_gpu
@pytest.mark.parametrize("scaling", ["raw", "standardised"])
def test_captured_steps_read_pinned_memory(
    scaling: str, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = make("erm", "cuda", scaling=scaling).run()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (300, 300))
    monkeypatch.setattr(prepared, "has_room", lambda size, device: True)  # for the edges
    monkeypatch.setattr(rows, "free_memory", lambda: 2**30)
    trainer = make("erm", "cuda", scaling=scaling)
    assert trainer.fields.of("train").reader.is_read_by_gpu
    found = trainer.run()
    assert steps[-1] == "DeviceBatches"
    assert found.history == expected.history


@needs_gpu
def test_captured_steps_read_edges_from_pinned_memory(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = make("erm", "cuda").run()
    task = make("erm", "cuda").task
    room = 20 * task.num_nodes  # for arrays over nodes, not for the edges
    monkeypatch.setattr(prepared, "has_room", lambda size, device: size < room)
    trainer = Trainer(task, "erm", "gcn", make("erm", "cuda").learner.settings, "cuda")
    graph = task_graph(task, False).graph_to_draw(trainer.fields.operators, trainer.learner.device)
    assert graph._neighbours["along"].col.is_pinned()
    assert trainer.fields.of("train").on(trainer.learner.device).device.type == "cpu"
    found = trainer.run()
    assert steps[-1] == "DeviceBatches"
    assert found.history == expected.history


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
    method = trainer.learner.new_method(trainer.task).cuda()
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

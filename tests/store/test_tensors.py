"""Conversion of named tensors and of the state of an optimiser."""

import torch
from safetensors.torch import load
from torch import nn

from canet.store.tensors import adam_shapes, optimizer_tensors, pack, restore_optimizer


def test_tensors_are_read_back_without_changes() -> None:
    tensors = {
        "single": torch.tensor([0.1, -0.0, torch.inf, torch.nan]),
        "double": torch.tensor(1 / 3, dtype=torch.double),
        "whole": torch.tensor(2**60),
        "bytes": torch.get_rng_state(),
        "transposed": torch.arange(6.0).view(2, 3).t(),
        "learning": nn.Parameter(torch.ones(2)),
    }
    read = load(pack(tensors))
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(read[name], tensor.detach(), rtol=0, atol=0, equal_nan=True)


def test_restored_optimizer_takes_the_same_next_step() -> None:
    def make() -> tuple[nn.Linear, torch.optim.Adam]:
        model = nn.Linear(3, 1)
        with torch.no_grad():
            model.weight.fill_(1.0)
            model.bias.fill_(0.0)
        groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.01}]
        return model, torch.optim.Adam(groups, weight_decay=0.1)

    def step(model: nn.Linear, adam: torch.optim.Adam) -> None:
        adam.zero_grad()
        model(torch.tensor([[1.0, 2.0, 3.0]])).square().sum().backward()
        adam.step()

    model, adam = make()
    for _ in range(3):
        step(model, adam)
    copy, restored = make()
    copy.load_state_dict(model.state_dict())
    restore_optimizer(restored, {k: v.clone() for k, v in optimizer_tensors(adam).items()})
    step(model, adam)
    step(copy, restored)
    assert model.weight.equal(copy.weight)
    assert model.bias.equal(copy.bias)
    shapes = {name: tensor.shape for name, tensor in optimizer_tensors(adam).items()}
    assert shapes == adam_shapes(adam)

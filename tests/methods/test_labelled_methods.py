"""Tests of all methods that need environment labels."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from canet.errors import CanetError
from canet.methods import BACKBONES, METHODS
from canet.methods.erm import ERM
from canet.training import Trainer
from tests.support.labelled import ENVIRONMENT, make
from tests.support.tiny import tiny_task

LABELLED = [name for name, method in METHODS.items() if method.needs_environments]
every_method = pytest.mark.parametrize("name", LABELLED)
every_backbone = pytest.mark.parametrize("backbone", BACKBONES)


def two_losses(name: str, backbone: Any, **changes: Any) -> list[float]:
    """Losses of two steps; the second depends on the buffers after the first."""
    method, batch = make(METHODS[name], backbone, **changes)
    adam = torch.optim.Adam(method.parameter_groups())
    return [method.update(batch, adam).item() for _ in range(2)]


@every_backbone
@every_method
def test_order_of_the_nodes_does_not_matter(name: str, backbone: str) -> None:
    order = torch.tensor([5, 2, 0, 6, 1, 4, 3])
    expected = two_losses(name, backbone)
    assert two_losses(name, backbone, order=order) == pytest.approx(expected, rel=1e-9)


@every_backbone
@pytest.mark.parametrize("name", [name for name in LABELLED if name != "dann"])
def test_names_of_the_environments_do_not_matter(name: str, backbone: str) -> None:
    renamed = torch.tensor([2, 0, 1])[ENVIRONMENT]
    expected = two_losses(name, backbone)
    assert two_losses(name, backbone, environment=renamed) == pytest.approx(expected, rel=1e-9)


@every_method
def test_membership_of_the_environments_does_matter(name: str) -> None:
    other = torch.tensor([0, 0, 1, 2, 1, 2, 0])
    assert two_losses(name, "gcn", environment=other)[1] != two_losses(name, "gcn")[1]


@every_backbone
@every_method
def test_every_parameter_gets_a_finite_gradient(name: str, backbone: str) -> None:
    method, batch = make(METHODS[name], backbone)
    method.loss(batch).backward()
    for parameter_name, parameter in method.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


@pytest.mark.parametrize("name", [name for name in LABELLED if name != "irm"])
def test_one_environment_is_plain_supervision(name: str) -> None:
    method, batch = make(METHODS[name], environment=torch.zeros_like(ENVIRONMENT))
    model = list(method.model.parameters())
    for _ in range(3):
        loss, plain = method.loss(batch), ERM.loss(method, batch)  # type: ignore[arg-type]
        torch.testing.assert_close(loss, plain)
        both = (torch.autograd.grad(x, model, retain_graph=True) for x in (loss, plain))
        for ours, theirs in zip(*both, strict=True):
            torch.testing.assert_close(ours, theirs)


@every_method
@pytest.mark.parametrize("environment", [None, 0, -1], ids=["no labels", "one label", "unlabelled"])
def test_task_without_two_labelled_environments_is_rejected(
    name: str, environment: int | None
) -> None:
    task = tiny_task()
    data = task.data.clone()
    if environment is None:
        del data.environment
    else:
        data.environment[task.train[environment + 1 :]] = environment
    with pytest.raises(CanetError, match=f"'{name}' needs an environment"):
        Trainer(replace(task, data=data), name, "gcn", device="cpu")

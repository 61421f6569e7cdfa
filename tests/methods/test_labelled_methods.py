"""Tests of all methods that need environment labels."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from canet.errors import CanetError
from canet.methods import BACKBONES, METHODS, Batch
from canet.methods.erm import ERM
from canet.models import Trainer
from tests.support.data_of import data_of
from tests.support.labelled import ENVIRONMENT, make
from tests.support.tiny import tiny_task

LABELLED = [name for name, method in METHODS.items() if method.traits.needs_environments]
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


def plain_loss(method: Any, batch: Batch) -> Tensor:
    """The first loss of a method by its definition, for the environments that have a node."""
    z, logits = (getattr(method.model(batch.x, batch.blocks), n) for n in ("embedding", "logits"))
    assert batch.environment is not None
    groups = [batch.environment == e for e in batch.environment.unique()]

    def risk(group: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        return method.node_losses(scale * logits[group], batch.y[group]).mean()

    def squared_slope(group: Tensor) -> Tensor:
        scale = torch.ones((), dtype=torch.double, requires_grad=True)
        return torch.autograd.grad(risk(group, scale), scale, create_graph=True)[0].square()

    def distance(one: Tensor, other: Tensor) -> Tensor:
        means = z[one].mean(dim=0) - z[other].mean(dim=0)
        covariances = covariance(z[one]) - covariance(z[other])
        return means.square().mean() + covariances.square().mean()

    supervised = method.node_losses(logits, batch.y).mean()
    risks = torch.stack([risk(group) for group in groups])
    match method.name:
        case "irm":
            return risks.mean() + torch.stack([squared_slope(group) for group in groups]).mean()
        case "vrex":
            return risks.mean() + (risks - risks.mean()).square().mean()
        case "coral":
            distances = [distance(*pair) for pair in combinations(groups, 2)]
            return supervised + sum(distances) / max(1, len(distances))
        case "group_dro":
            raised = (method.settings.eta * risks.detach()).exp()
            without_nodes = method.num_environment_labels - len(groups)
            return raised @ risks / (raised.sum() + without_nodes)
        case "dann":  # the reversed gradient has weight 0 in the first update
            guess = method.discriminator(z.detach())
            return supervised + F.cross_entropy(guess, batch.environment)
    raise NotImplementedError(method.name)


def covariance(z: Tensor) -> Tensor:
    centred = z - z.mean(dim=0)
    return centred.t() @ centred / max(1, len(z) - 1)


@every_method
@pytest.mark.parametrize(
    "ids", [[0, 3, 3, 0, 0, 3, 3], [3, 1, 1, 3, 0, 3, 1], [3] * 7, ENVIRONMENT.tolist()], ids=str
)
def test_environments_without_a_node_in_a_batch_do_not_count(name: str, ids: list[int]) -> None:
    method, batch = make(METHODS[name], environment=torch.tensor(ids))
    parameters = list(method.parameters())
    expected = plain_loss(method, batch)
    by_definition = torch.autograd.grad(expected, parameters)
    loss = method.loss(batch)
    torch.testing.assert_close(loss, expected)
    for ours, plain in zip(torch.autograd.grad(loss, parameters), by_definition, strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, plain)


@every_method
def test_training_in_batches_of_one_node_has_finite_losses(name: str) -> None:
    settings = METHODS[name].settings_type(hidden=4, epochs=2, batch_size=1)
    history = Trainer(tiny_task(), name, "gcn", settings, "cpu").run(0).history
    assert torch.tensor(history["loss"]).isfinite().all()


@every_method
@pytest.mark.parametrize("environment", [None, 0, -1], ids=["no labels", "one label", "unlabelled"])
def test_task_without_two_labelled_environments_is_rejected(
    name: str, environment: int | None
) -> None:
    task = tiny_task()
    data = data_of(task)
    if environment is None:
        del data.environment
    else:
        data.environment[task.train[environment + 1 :]] = environment
    with pytest.raises(CanetError, match=f"'{name}' needs an environment"):
        Trainer(replace(task, data=data), name, "gcn", device="cpu")

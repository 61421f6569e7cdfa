from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from canet.methods import BACKBONES, sr_gnn
from canet.methods.sr_gnn import SRGNN, SRGNNSettings, central_moment_discrepancy
from canet.models import Trainer
from canet.util.torch_state import seeded
from tests.support.tiny import tiny_task

every_backbone = pytest.mark.parametrize("backbone", BACKBONES)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def trainer(backbone: str = "gcn", inductive: bool = False, **settings: Any) -> Trainer:
    quick = {"hidden": 8, "epochs": 30, "learning_rate": 0.02} | settings
    task = tiny_task(inductive=inductive)
    return Trainer(task, "sr_gnn", backbone, SRGNNSettings(**quick), "cpu")


def prepared(of: Trainer) -> SRGNN:
    with seeded(0, torch.device("cpu")):
        method = of.learner.new_method(of.task)
        method.prepare(of.fields.view())
    assert isinstance(method, SRGNN)
    return method


# The central moment discrepancy


@pytest.mark.parametrize("width", [1.0, 2.0])
def test_moment_discrepancy_is_the_papers_sum(width: float) -> None:
    p, q = torch.rand(7, 3).double().numpy(), torch.rand(5, 3).double().numpy() ** 2
    expected = np.linalg.norm(p.mean(0) - q.mean(0)) / width
    for k in (2, 3, 4, 5):
        moments = [((s - s.mean(0)) ** k).mean(0) for s in (p, q)]
        expected += np.linalg.norm(moments[0] - moments[1]) / width**k
    got = central_moment_discrepancy(torch.from_numpy(p), torch.from_numpy(q), width)
    assert got.item() == pytest.approx(expected)


def test_equal_samples_have_no_discrepancy_and_a_finite_gradient() -> None:
    sample = torch.rand(6, 4, requires_grad=True)
    discrepancy = central_moment_discrepancy(sample, sample.detach().clone(), 2.0)
    assert discrepancy.item() == 0
    discrepancy.backward()
    assert sample.grad is not None
    assert sample.grad.isfinite().all()


# The method


@every_backbone
def test_loss_is_the_weighted_mean_and_the_discrepancy_from_the_sample(backbone: str) -> None:
    of = trainer(backbone, cmd_weight=0.3)
    method = prepared(of).eval()
    batch = of.fields.batch("train")
    ours = method.model(batch.x, batch.blocks)
    graph = method.model(*method.sample).embedding
    probability = ours.logits.softmax(dim=1)
    supervised = sum(
        -method.beta[i] * probability[i, y].log() for i, y in enumerate(batch.y.tolist())
    )
    discrepancy = central_moment_discrepancy(ours.embedding.tanh(), graph.tanh(), 2.0)
    expected = supervised / len(batch.y) + 0.3 * discrepancy
    torch.testing.assert_close(method.loss(batch), expected)


@every_backbone
def test_weights_are_within_the_bounds_with_a_mean_of_one_in_every_class(backbone: str) -> None:
    of = trainer(backbone, min_weight=0.5, max_weight=1.5)
    beta, y = prepared(of).beta, of.fields.batch("train").y
    assert beta.shape == y.shape
    assert beta.min() >= 0.5
    assert beta.max() <= 1.5
    assert beta.unique().numel() > 1
    for c in y.unique():
        assert beta[y == c].mean().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("inductive", [False, True])
def test_sample_is_observed_outside_the_training_set_and_as_large(
    inductive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = trainer(inductive=inductive)
    asked: list[Tensor] = []
    own = of.fields.of("train")
    read = own.read
    monkeypatch.setattr(own, "read", lambda nodes: asked.append(nodes) or read(nodes))
    prepared(of)
    sample, train = asked
    assert train.equal(of.task.train)
    assert sample.unique().numel() == train.numel()
    assert torch.isin(sample, of.task.observed()).all()
    assert not torch.isin(sample, train).any()


def test_without_other_nodes_the_sample_is_drawn_from_training_nodes() -> None:
    of = trainer()
    view = of.fields.view()
    method = of.learner.new_method(of.task)
    method.prepare(replace(view, observed=view.train))
    assert method.model(*method.sample).logits.shape[0] == view.train.numel()


def test_training_nodes_beyond_the_sample_take_the_weight_of_the_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = trainer()
    solved: list[Tensor] = []

    def numbered(source: Tensor, *_: Any) -> Tensor:
        solved.append(source)
        return torch.arange(1, 1 + len(source)).double()

    monkeypatch.setattr(sr_gnn, "MAX_SAMPLE", 5)
    monkeypatch.setattr(sr_gnn, "mean_matching_weights", numbered)
    method = prepared(of)
    batch = of.fields.batch("train")
    features = method.propagated(batch.x, batch.blocks)
    (source,) = solved
    assert len(source) == 5
    nearest = torch.tensor(
        [min(range(5), key=lambda i: float((node - source[i]).norm())) + 1.0 for node in features]
    )
    for c in batch.y.unique():
        own = batch.y == c
        torch.testing.assert_close(method.beta[own], nearest[own] / nearest[own].mean())


@every_backbone
def test_propagated_features_are_means_over_the_hops(backbone: str) -> None:
    of = trainer(backbone)
    method = prepared(of)
    x, blocks = of.fields.view().read(torch.tensor([3, 50]))
    ones = torch.ones_like(x)
    with torch.no_grad():
        constant = method.model.phi_in.weight.sum(dim=1).double()
    torch.testing.assert_close(
        method.propagated(ones, blocks), constant.expand(2, -1), atol=1e-5, rtol=1e-5
    )


def test_weights_are_not_saved() -> None:
    of = trainer()
    assert prepared(of).state_dict().keys() == of.learner.new_method(of.task).state_dict().keys()

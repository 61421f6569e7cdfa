from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from canet.methods import BACKBONES, sr_gnn
from canet.methods.sr_gnn import (
    SRGNN,
    SRGNNSettings,
    central_moment_discrepancy,
    mean_matching_weights,
)
from canet.training import Trainer
from canet.training.trainer import seeded
from tests.training.tiny import tiny_task

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
        method = of._new_method()
        method.prepare(of.fields.view())
    assert isinstance(method, SRGNN)
    return method


# The central moment discrepancy


def test_moment_discrepancy_by_hand() -> None:
    first, second = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [1.0]])
    # means 1/2 and 1; central moments of the first: 1/4, 0, 1/16, 0; of the second: none
    expected = 0.5 / 2 + 0.25 / 4 + 0.0625 / 16
    assert central_moment_discrepancy(first, second, 2.0).item() == pytest.approx(expected)


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


# Kernel mean matching


def objective(beta: Tensor, source: Tensor, target: Tensor) -> float:
    """The squared distance of the weighted means, in the feature space, by its kernel."""
    scale = torch.cdist(source, target).square().median()

    def kernel(first: Tensor, second: Tensor) -> Tensor:
        return (-torch.cdist(first, second).square() / scale).exp() + sr_gnn.CONSTANT_FEATURE

    share = beta / len(source)
    within = share @ kernel(source, source) @ share
    across = share @ kernel(source, target).mean(dim=1)
    return float(within - 2 * across + kernel(target, target).mean())


def test_weights_move_to_where_the_target_is() -> None:
    source = torch.cat([torch.randn(30, 2), torch.randn(10, 2) + 4]).double()
    target = torch.cat([torch.randn(10, 2), torch.randn(30, 2) + 4]).double()
    weights = mean_matching_weights(source, target, 0.0, 10.0)
    assert weights[:30].mean() < 0.5
    assert weights[30:].mean() > 2
    assert weights.mean().item() == pytest.approx(1, abs=0.01)


def test_matched_samples_keep_weight_one() -> None:
    source = torch.randn(20, 3).double()
    weights = mean_matching_weights(source, source.flip(0), 0.2, 10.0)
    torch.testing.assert_close(weights, torch.ones_like(weights), atol=1e-3, rtol=0)


def test_features_all_equal_keep_weight_one() -> None:
    weights = mean_matching_weights(torch.ones(5, 3).double(), torch.ones(4, 3).double(), 0.2, 10.0)
    torch.testing.assert_close(weights, torch.ones(5).double())


def test_weights_are_the_optimum_that_another_solver_finds() -> None:
    source, target = torch.randn(6, 2).double(), torch.randn(9, 2).double() + 0.7
    low, high = 0.2, 2.5
    ours = mean_matching_weights(source, target, low, high)
    reference = minimize(
        lambda beta: objective(torch.from_numpy(beta), source, target),
        np.ones(6),
        method="SLSQP",
        bounds=[(low, high)] * 6,
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert reference.success
    np.testing.assert_allclose(ours.numpy(), reference.x, atol=0.01)
    assert objective(ours, source, target) <= reference.fun + 1e-6
    assert objective(ours, source, target) < objective(torch.ones(6).double(), source, target)


def test_weights_stay_within_their_bounds() -> None:
    source, target = torch.randn(50, 2).double(), torch.randn(50, 2).double() / 4 + 2
    weights = mean_matching_weights(source, target, 0.2, 3.0)
    assert weights.min().item() == pytest.approx(0.2)
    assert weights.max().item() == pytest.approx(3.0)


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
def test_each_training_node_has_a_weight_within_the_bounds(backbone: str) -> None:
    of = trainer(backbone, min_weight=0.5, max_weight=1.5)
    beta = prepared(of).beta
    assert beta.shape == of.task.train.shape
    assert beta.min() >= 0.5
    assert beta.max() <= 1.5
    assert beta.unique().numel() > 1


@pytest.mark.parametrize("inductive", [False, True])
def test_sample_is_observed_and_as_large_as_the_training_set(
    inductive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = trainer(inductive=inductive)
    asked: list[Tensor] = []
    read = of.fields._read
    monkeypatch.setattr(
        of.fields, "_read", lambda nodes, hidden: asked.append(nodes) or read(nodes, hidden)
    )
    prepared(of)
    sample, train = asked
    assert train.equal(of.task.train)
    assert sample.unique().numel() == train.numel()
    assert torch.isin(sample, of.task.observed()).all()


def test_training_nodes_beyond_the_sample_take_the_weight_of_the_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = trainer()
    solved: list[Tensor] = []

    def numbered(source: Tensor, *_: Any) -> Tensor:
        solved.append(source)
        return torch.arange(len(source)).double()

    monkeypatch.setattr(sr_gnn, "MAX_SAMPLE", 5)
    monkeypatch.setattr(sr_gnn, "mean_matching_weights", numbered)
    method = prepared(of)
    batch = of.fields.batch("train")
    features = method.propagated(batch.x, batch.blocks)
    (source,) = solved
    assert len(source) == 5
    for node, weight in zip(features, method.beta.tolist(), strict=True):
        distances = [float((node - center).norm()) for center in source]
        assert weight == distances.index(min(distances))


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


def test_weights_are_no_part_of_the_saved_state() -> None:
    of = trainer()
    assert prepared(of).state_dict().keys() == of._new_method().state_dict().keys()


@every_backbone
def test_loss_falls(backbone: str) -> None:
    losses = torch.tensor(trainer(backbone).run().history["loss"])
    assert losses[-5:].mean() < losses[:5].mean() - 0.05

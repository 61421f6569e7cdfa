from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from canet.diagnosis.confidence import abstention, auroc, calibration, confidence, cross_fitted
from canet.diagnosis.graph import read

from .planted import planted, random_graph, sign_of
from .test_calibration import labelled


def test_both_halves_are_scaled_by_the_temperature_of_the_other() -> None:
    logits, y = labelled(4000)
    scaled = calibration(3 * logits, y, cross_fitted(3 * logits, y, 0))
    assert scaled.error > 8
    assert scaled.scaled_error < 3
    assert scaled.confidence > scaled.accuracy.value + 8
    assert sum(b.nodes for b in scaled.scaled_bins) == scaled.nodes == 4000


def test_one_node_is_scaled_by_itself() -> None:
    assert cross_fitted(np.array([[1.0, 0.0]]), np.array([0]), 0).shape == (1,)


def test_accuracy_rises_as_the_unsure_are_left_out() -> None:
    certainty = np.linspace(0, 1, 100)
    right = certainty > 0.3
    curve = abstention(certainty, right)
    assert list(curve) == list(range(5, 101, 5))
    assert curve[70].value == 100
    assert curve[100].value == pytest.approx(70)
    assert curve[80].value == pytest.approx(100 * 70 / 80)


def test_the_area_is_scikit_learns_with_ties() -> None:
    random = np.random.default_rng(0)
    low, high = random.integers(8, size=50), random.integers(2, 11, size=70)
    y = np.repeat([0, 1], [50, 70])
    expected = roc_auc_score(y, np.concatenate([low, high]))
    found = auroc(low, high)
    assert found.value == pytest.approx(expected)
    assert found.low < found.value < found.high


def test_a_new_graph_is_compared_where_it_has_labels() -> None:
    data, new = random_graph(n=300), random_graph(n=200, seed=1)
    model = planted(sign_of(3), data)
    found = confidence(model, read(model, new))
    assert found.valid.accuracy.value == 100
    assert found.new is not None
    assert found.new.nodes == 200
    assert found.temperature < 0.2  # always right, so it could be surer
    assert found.new.scaled_error < found.new.error
    del new.y
    assert confidence(model, read(model, new)).new is None
    assert confidence(model, None).unlike is None


def test_nodes_far_from_training_are_told() -> None:
    data = random_graph(n=300)
    rule = sign_of(3)
    model = planted(rule, data)
    usual = confidence(model, read(model, random_graph(n=200, seed=1))).unlike
    assert usual is not None
    assert usual.auroc.value == pytest.approx(0.5, abs=0.3)
    assert usual.finds_errors is None  # as there is none
    spread = torch.randn(300, 8, generator=torch.Generator().manual_seed(0)).double()
    near = torch.eye(8).double()[0] * 5 + spread / 10
    model.reference_ = replace(model.reference_, embedding=near, valid_embedding=near)
    model.embed = lambda data: spread.numpy()  # type: ignore[method-assign]
    model.unlike_training = lambda data: model.reference_.unlike_training(spread).numpy()  # type: ignore[method-assign]
    far = confidence(model, read(model, random_graph(n=300, seed=1))).unlike
    assert far is not None
    assert far.auroc.value > 0.95
    assert far.far.value > 90

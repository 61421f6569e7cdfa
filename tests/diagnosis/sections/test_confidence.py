from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax

from canet.diagnosis.graph import read_graph
from canet.diagnosis.sections import expected
from canet.diagnosis.sections.confidence import (
    abstention,
    calibration_error,
    compute,
    cross_fitted,
    reliability,
    reliability_bins,
)
from canet.scoring.calibration import Calibration
from canet.scoring.intervals import Estimate
from tests.support.planted import labelled, make_context, planted, random_graph, sign_of

TEMPERATURE, BIAS = Calibration(), Calibration(bias=[0.0] * 4)


@pytest.mark.parametrize("kind", [TEMPERATURE, BIAS])
def test_both_halves_are_calibrated_like_the_other(kind: Calibration) -> None:
    logits, y = labelled(4000)
    shifted = 3 * logits + np.array([1.0, -1.0, 0.0, 0.0]) * len(kind.bias)
    found = reliability(shifted, y, cross_fitted(kind, shifted, y, 0))
    assert found.error > 0.08
    assert found.calibrated_error < 0.03
    assert found.confidence > found.accuracy.value + 0.08
    assert sum(b.num_nodes for b in found.calibrated_bins) == found.nodes == 4000


def test_no_node_is_calibrated_on_its_own_label() -> None:
    logits, y = labelled(40)
    changed = np.where(np.arange(40) == 7, (y + 1) % 4, y)
    for kind in (TEMPERATURE, BIAS):
        before, after = (cross_fitted(kind, logits, labels, 0) for labels in (y, changed))
        same = (before == after).all(axis=1)
        assert same[7]
        assert same.sum() == 20  # the others of its half


def test_one_node_is_calibrated_by_itself() -> None:
    assert cross_fitted(TEMPERATURE, np.array([[1.0, 0.0]]), np.array([0]), 0).shape == (1, 2)


@pytest.mark.parametrize("bias", [[], [1.0, -1.0]])
def test_the_confidence_on_the_new_graph_is_that_of_the_model(bias: list[float]) -> None:
    new = random_graph(n=200, seed=1)
    model = planted(sign_of(3), random_graph(n=300))
    model.calibration_ = replace(model.calibration_, temperature=2.0, bias=bias)
    found, graph = compute(make_context(model, new)), read_graph(model, new)
    assert found.calibration is model.calibration_
    probabilities = softmax(model.calibration_.apply(graph.logits), axis=1)
    mean = np.average(
        [b.confidence for b in found.new.calibrated_bins],
        weights=[b.num_nodes for b in found.new.calibrated_bins],
    )
    assert mean == pytest.approx(probabilities.max(axis=1).mean())
    assert expected.compute(make_context(model, new)).confidence == pytest.approx(
        probabilities[np.arange(200), graph.logits.argmax(axis=1)].mean()
    )


def test_accuracy_rises_if_uncertain_nodes_are_left_out() -> None:
    certainty = np.linspace(0, 1, 100)
    right = certainty > 0.3
    curve = abstention(certainty, right)
    assert list(curve) == [i / 20 for i in range(1, 21)]
    assert curve[0.7].value == 1
    assert curve[1].value == pytest.approx(0.7)
    assert curve[0.8].value == pytest.approx(70 / 80)


def test_a_new_graph_with_labels_is_compared() -> None:
    data, new = random_graph(n=300), random_graph(n=200, seed=1)
    model = planted(sign_of(3), data)
    found = compute(make_context(model, new))
    assert found.valid.accuracy.value == 1
    assert found.new.nodes == 200
    assert found.calibration.temperature < 0.2  # always correct, so it is underconfident
    assert found.new.calibrated_error < found.new.error
    del new.y
    assert compute(make_context(model, new)).new is None
    assert compute(make_context(model)).novelty is None


def test_novel_nodes_are_found() -> None:
    data = random_graph(n=300)
    model = planted(sign_of(3), data)
    usual = compute(make_context(model, random_graph(n=200, seed=1))).novelty
    assert usual.auroc.value == pytest.approx(0.5, abs=0.3)
    assert usual.error_auroc is None  # as there is none
    spread = torch.randn(300, 8, generator=torch.Generator().manual_seed(0)).double()
    near = torch.eye(8).double()[0] * 5 + spread / 10
    model.reference_ = replace(model.reference_, embedding=near, valid_embedding=near)
    context = make_context(model, random_graph(n=300, seed=1))
    context.graphs["new"] = replace(context.graphs["new"], embedding=spread.numpy())
    far = compute(context).novelty
    assert far.auroc.value > 0.95
    assert far.novel.value > 0.9


@pytest.mark.parametrize(
    ("confidence", "over", "under"), [(0.99, True, False), (0.6, False, True), (0.81, False, False)]
)
def test_confidence_is_compared_with_accuracy(confidence: float, over: bool, under: bool) -> None:
    logits, y = labelled(50)
    found = reliability(logits, y, cross_fitted(TEMPERATURE, logits, y, 0))
    found = replace(found, confidence=confidence, accuracy=Estimate(0.8, 0.7, 0.9))
    assert (found.is_overconfident, found.is_underconfident) == (over, under)


def test_the_calibration_error_is_that_of_a_loop_over_bins() -> None:
    random = np.random.default_rng(0)
    confidence = np.concatenate([random.uniform(0.2, 1, 200), [1.0, 1 / 15, 0.2]])
    right = random.random(203) < confidence**2
    slow = 0.0
    for i in range(15):
        inside = [v for v in range(203) if i / 15 < confidence[v] <= (i + 1) / 15]
        if inside:
            accuracy = sum(right[v] for v in inside) / len(inside)
            mean = sum(confidence[v] for v in inside) / len(inside)
            slow += len(inside) / 203 * abs(accuracy - mean)
    bins = reliability_bins(confidence, right)
    assert calibration_error(bins) == pytest.approx(slow)
    assert sum(b.num_nodes for b in bins) == 203

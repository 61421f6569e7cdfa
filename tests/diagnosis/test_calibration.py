from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from canet.diagnosis.calibration import calibration_error, reliability_bins
from canet.estimator.calibration import (
    calibrated_probabilities,
    fit_bias,
    fit_temperature,
    softmax,
)
from tests.support.planted import labelled


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_a_known_temperature_is_recovered(temperature: float) -> None:
    logits, y = labelled(8000)
    assert fit_temperature(temperature * logits, y) == pytest.approx(temperature, rel=0.05)


def test_the_temperature_has_the_least_loss_and_prior_of_a_grid() -> None:
    logits, y = labelled(60)

    def loss(t: float) -> float:
        likelihood = log_softmax(logits / t, axis=1)[np.arange(60), y].sum()
        return float(2 * np.log(t) ** 2 - likelihood) / 60

    best = fit_temperature(logits, y)
    assert loss(best) <= min(loss(t) for t in np.geomspace(0.1, 20, 400)) + 1e-6


@pytest.mark.parametrize("wrong", [True, False])
def test_the_temperature_of_few_nodes_stays_within_its_bounds(wrong: bool) -> None:
    logits = labelled(6)[0]
    y = logits.argmin(axis=1) if wrong else logits.argmax(axis=1)
    found = fit_temperature(logits, y)
    assert 1 < found < 5 if wrong else 0.2 < found < 1


def test_a_bias_corrects_class_weights() -> None:
    logits, y = labelled(6000)
    bias = np.array([0.0, 3.0, -1.0, 0.5])
    theta = fit_bias(2 * (logits + bias), y)
    assert np.exp(theta[0]) == pytest.approx(2, rel=0.1)
    assert theta[1:] - theta[1] == pytest.approx(bias[0] - bias, abs=0.3)
    assert calibrated_probabilities(2 * (logits + bias), theta).mean(axis=0) == pytest.approx(
        np.bincount(y) / 6000, abs=0.01
    )


def test_a_weight_equals_a_repeated_node() -> None:
    logits, y = labelled(50)
    weight = np.random.default_rng(1).integers(0, 4, 50)
    again = fit_temperature(logits.repeat(weight, axis=0), y.repeat(weight))
    assert fit_temperature(logits, y, weight) == pytest.approx(again, rel=1e-3)


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


def test_a_calibrated_model_has_a_small_error() -> None:
    logits, y = labelled(20000)
    right = logits.argmax(axis=1) == y
    assert calibration_error(reliability_bins(softmax(logits).max(axis=1), right)) < 0.015
    assert calibration_error(reliability_bins(softmax(3 * logits).max(axis=1), right)) > 0.08

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from canet.diagnosis.sections.expected import (
    ExpectedScore,
    compute,
    expected_score,
    find_renamed_classes,
)
from tests.support.planted import labelled, make_context, planted, random_graph, sign_of

ESTIMATES = ("thresholded_entropy", "thresholded", "average_confidence", "difference")


def estimates(found: ExpectedScore) -> list[float]:
    return [getattr(found, name).value for name in ESTIMATES]


@pytest.fixture(scope="module")
def calibrated() -> ExpectedScore:
    return expected_score(*labelled(1500), *labelled(1200, seed=1))


def test_without_shift_all_intervals_contain_the_true_score(calibrated: ExpectedScore) -> None:
    assert calibrated.actual is not None
    for name in ESTIMATES:
        estimate = getattr(calibrated, name)
        assert estimate.low <= calibrated.actual.value <= estimate.high
        assert estimate.low < estimate.value < estimate.high


def test_the_threshold_matches_the_error_rate() -> None:
    logits, y = labelled(101)
    right = logits.argmax(axis=1) == y
    new, _ = labelled(77, seed=1)
    confidence = [max(np.exp(row) / np.exp(row).sum()) for row in logits]
    threshold = sorted(confidence)[sum(~right)]
    above = sum(max(np.exp(row) / np.exp(row).sum()) >= threshold for row in new)
    found = expected_score(logits, y, new)
    assert found.thresholded.value == pytest.approx(above / 77)
    assert found.actual is None
    assert found.nodes == 77


def test_the_estimate_for_the_validation_nodes_is_their_accuracy() -> None:
    logits, y = labelled(400)
    found = expected_score(logits, y, logits)
    for name in ("thresholded_entropy", "thresholded", "difference"):
        assert getattr(found, name).value == pytest.approx(found.valid.value)


def test_harder_calibrated_nodes_have_a_lower_expected_score() -> None:
    logits, y = labelled(3000)
    hard = 0.5 * labelled(2000, seed=1)[0]
    random = np.random.default_rng(0)
    p = np.exp(hard) / np.exp(hard).sum(axis=1, keepdims=True)
    truth = (random.random((2000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    found = expected_score(logits, y, hard, truth)
    assert found.actual is not None
    assert found.actual.value < found.valid.value - 0.1
    assert found.average_confidence.value == pytest.approx(found.actual.value, abs=0.03)
    assert all(value < found.valid.value - 0.1 for value in estimates(found))


def test_the_temperature_corrects_overconfidence() -> None:
    (logits, y), (new, truth) = labelled(3000), labelled(2000, seed=1)
    found = expected_score(4 * logits, y, 4 * new, truth)
    assert found.actual is not None
    assert found.average_confidence.value == pytest.approx(found.actual.value, abs=0.025)
    assert found.thresholded_entropy.value == pytest.approx(found.actual.value, abs=0.025)


@pytest.mark.parametrize("wrong", [True, False])
def test_all_correct_and_all_wrong_predictions_are_estimated(wrong: bool) -> None:
    logits = labelled(40)[0]
    y = logits.argmin(axis=1) if wrong else logits.argmax(axis=1)
    found = expected_score(logits, y, logits)
    assert found.thresholded_entropy.value == (0 if wrong else 1)
    assert all(0 <= value <= 1 for value in estimates(found))


def test_a_constant_per_node_does_not_change_the_estimates(calibrated: ExpectedScore) -> None:
    (logits, y), (new, truth) = labelled(1500), labelled(1200, seed=1)
    again = expected_score(logits, y, new - new[:, :1], truth)
    assert estimates(again) == pytest.approx(estimates(calibrated))


@pytest.mark.slow
def test_intervals_have_about_their_nominal_coverage() -> None:
    held = 0
    for seed in range(40):
        found = expected_score(*labelled(300, 2 * seed), *labelled(5000, 2 * seed + 1), seed=seed)
        assert found.actual is not None
        held += (
            found.thresholded_entropy.low <= found.actual.value <= found.thresholded_entropy.high
        )
    assert held >= 34


def test_the_score_covers_all_estimates_and_their_intervals(calibrated: ExpectedScore) -> None:
    every = [getattr(calibrated, name) for name in ESTIMATES]
    assert calibrated.range == (min(estimates(calibrated)), max(estimates(calibrated)))
    assert calibrated.score.low == min(estimate.low for estimate in every)
    assert calibrated.score.high == max(estimate.high for estimate in every)
    assert calibrated.score.value == calibrated.average_confidence.value


@pytest.mark.parametrize("kind", [torch.Tensor.clone, torch.Tensor.requires_grad_])
def test_tensors_give_the_result_of_arrays(kind: Callable[[torch.Tensor], torch.Tensor]) -> None:
    (logits, y), (new, truth) = labelled(200), labelled(150, seed=1)
    arrays = expected_score(logits, y, new, truth)
    tensors = [kind(torch.from_numpy(part)) for part in (logits, new)]
    y, truth = torch.from_numpy(y), torch.from_numpy(truth)
    assert expected_score(tensors[0], y, tensors[1], truth) == arrays


def rare(n: int, seed: int, slope: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of an overconfident model with balanced weights, for 3 % positive nodes."""
    random = np.random.default_rng(seed)
    x = random.normal(size=n)
    y = random.random(n) < 1 / (1 + np.exp(5.3 - slope * x))
    return np.stack([0 * x, 1.7 * (2 * x - 5.3 + np.log(49))], axis=1), y.astype(int)


@pytest.mark.parametrize("metric", ["roc_auc", "macro_f1"])
def test_another_metric_is_expected_from_calibrated_probabilities(metric: str) -> None:
    valid, (new, truth) = rare(4000, 0), rare(5000, 1)
    easy = new[:, 1] < np.quantile(new[:, 1], 0.9)
    for chosen in (np.ones(5000, dtype=bool), easy):
        found = expected_score(*valid, new[chosen], truth[chosen], metric=metric)
        assert (found.thresholded, found.thresholded_entropy) == (None, None)
        assert found.actual is not None
        assert found.score.low <= found.actual.value <= found.score.high
    assert found.valid.value > found.actual.value + 0.02  # where positive nodes are hard to find


def test_accuracy_is_estimated_if_validation_nodes_lack_a_class() -> None:
    data = random_graph()
    model = planted(sign_of(3), data, metric="roc_auc")
    found = compute(make_context(model, random_graph(seed=1)))
    assert found is not None
    assert found.metric == "roc_auc"
    assert found.actual is not None
    assert found.actual.value == 1
    lacking = model.reference_.valid_y.clone().zero_()
    model.reference_ = replace(model.reference_, valid_y=lacking)
    found = compute(make_context(model, random_graph(seed=1)))
    assert found is not None
    assert found.metric == "accuracy"


def test_renamed_classes_are_found() -> None:
    logits, y = labelled(400)
    assert expected_score(logits, y, logits, y).renamed is None
    classes = logits.shape[1]
    renamed = (y + 1) % classes
    found = expected_score(logits, y, logits, renamed).renamed
    assert found is not None
    assert found.names == {c: (c + 1) % classes for c in range(classes)}
    right = np.mean(logits.argmax(axis=1) == y)
    assert found.renamed_accuracy.value == pytest.approx(right)
    assert found.accuracy.value == pytest.approx(np.mean(logits.argmax(axis=1) == renamed))
    random = np.random.default_rng(0)
    assert find_renamed_classes(random.integers(3, size=60), random.integers(3, size=60), 3) is None
    assert find_renamed_classes(np.empty(0, int), np.empty(0, int), 3) is None


def test_an_unknown_label_is_not_a_renamed_class() -> None:
    y = np.repeat([0, 1, 2], 50)
    assert find_renamed_classes(y % 2, y, 2) is None
    swapped = find_renamed_classes(1 - y % 2, y, 2)
    assert swapped is not None
    assert swapped.names == {0: 1, 1: 0}


def test_false_alarms_of_a_rare_class_are_not_renamed_classes() -> None:
    y = np.array([1] * 40 + [0] * 1460)
    predicted = np.array([1] * 39 + [0] + [1] * 901 + [0] * 559)
    assert find_renamed_classes(predicted, y, 2) is None
    swapped = find_renamed_classes(1 - y, y, 2)
    assert swapped is not None
    assert swapped.names == {0: 1, 1: 0}

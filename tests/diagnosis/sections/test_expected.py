import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score

from canet.diagnosis.sections import expected
from canet.diagnosis.sections.expected import compute, expected_score, find_renamed_classes
from canet.models.auto import AVERAGE
from canet.store.result import Candidate
from tests.support.planted import labelled, make_context, planted, random_graph, sign_of


def rare(n: int, seed: int, slope: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of an overconfident model with balanced weights, for 3 % positive nodes."""
    random = np.random.default_rng(seed)
    x = random.normal(size=n)
    y = random.random(n) < 1 / (1 + np.exp(5.3 - slope * x))
    return np.stack([0 * x, 1.7 * (2 * x - 5.3 + np.log(49))], axis=1), y.astype(int)


METRICS = ("accuracy", "roc_auc", "macro_f1", "average_precision")
(VALID, Y), (NEW, _) = rare(2000, 0), rare(1500, 1)


@pytest.mark.parametrize("metric", METRICS)
def test_the_estimate_is_the_mean_of_confidence_and_held_out_score(metric: str) -> None:
    """Its range contains it and has the errors of the study; it is at most validation."""
    for held_out, is_auto in ((math.nan, True), (0.0, False), (0.6, True), (1.0, True)):
        how: dict[str, Any] = {"held_out": held_out, "is_auto": is_auto}
        found = expected_score(VALID, Y, NEW, metric=metric, **how)
        unknown = math.isnan(held_out)
        assert found.source == ("confidence" if unknown else "auto" if is_auto else "held_out")
        errors = np.array(expected.ERRORS[expected.KINDS[metric], found.source])
        estimate = found.confidence if unknown else (found.confidence + held_out) / 2
        low, value, high = estimate + errors
        assert found.value == pytest.approx(np.clip(value, 0, found.validation))
        assert found.low == pytest.approx(np.clip(low, 0, found.value))
        assert found.high == pytest.approx(np.clip(high, found.value, 1))


@pytest.mark.parametrize("kind", sorted(set(expected.KINDS.values())))
def test_the_range_is_wider_without_a_held_out_score(kind: str) -> None:
    limits = [expected.ERRORS[kind, source] for source in ("auto", "held_out", "confidence")]
    widths = [high - low for low, _, high in limits]
    assert max(widths) == widths[-1]


def test_a_large_expected_loss_is_a_warning() -> None:
    found = expected_score(VALID, Y, NEW)
    for source, most in expected.MAX_LOSS.items():
        for loss in (most + 0.001, most - 0.001):
            own = replace(found, source=source, value=found.validation - loss)
            assert own.warns == (loss > most)
            assert replace(own, metric="average_precision").warns


@pytest.mark.parametrize(("scale", "hardness"), [(1.0, 1.0), (4.0, 1.0), (1.0, 0.5)])
def test_the_calibrated_confidence_is_the_true_score_of_calibrated_nodes(
    scale: float, hardness: float
) -> None:
    """Also if the model is overconfident, or if the new nodes are harder."""
    (logits, y), hard = labelled(3000), hardness * labelled(2000, seed=1)[0]
    p = np.exp(hard) / np.exp(hard).sum(axis=1, keepdims=True)
    truth = (np.random.default_rng(0).random((2000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    found = expected_score(scale * logits, y, scale * hard, truth)
    assert found.confidence == pytest.approx(found.actual.value, abs=0.03)
    again = expected_score(scale * logits, y, scale * (hard - hard[:, :1]))
    assert again.confidence == pytest.approx(found.confidence)
    assert (again.actual, again.nodes) == (None, 2000)


@pytest.mark.parametrize("metric", ["roc_auc", "macro_f1", "average_precision"])
def test_another_metric_is_expected_from_calibrated_probabilities(metric: str) -> None:
    valid, (new, truth) = rare(4000, 0), rare(5000, 1)
    easy = new[:, 1] < np.quantile(new[:, 1], 0.9)
    for chosen in (np.ones(5000, dtype=bool), easy):
        found = expected_score(*valid, new[chosen], truth[chosen], metric=metric)
        assert found.confidence == pytest.approx(found.actual.value, abs=0.06)
        assert found.share == pytest.approx(truth[chosen].mean(), abs=0.01)
        assert found.depends_on_shares == (metric != "roc_auc")
    assert found.validation > found.actual.value + 0.02  # where positive nodes are hard to find


@pytest.mark.parametrize(
    ("metric", "function"),
    [
        ("accuracy", accuracy_score),
        ("roc_auc", roc_auc_score),
        ("macro_f1", partial(f1_score, average="macro", zero_division=0)),
        ("average_precision", average_precision_score),
    ],
)
def test_the_baseline_is_the_score_of_the_same_answer_for_every_node(
    metric: str, function: Callable[..., float]
) -> None:
    found = expected_score(VALID, Y, NEW, metric=metric, rarer=1)
    assert found.baseline == pytest.approx(function(Y, np.zeros(len(Y))))
    for lead in (0.5, 1.5):
        value = found.baseline + lead * expected.MIN_LEAD
        assert replace(found, value=value).is_hardly_better == (lead < 1)
    swapped = expected_score(VALID[:, ::-1], 1 - Y, NEW[:, ::-1], metric=metric, rarer=0)
    assert (swapped.baseline, swapped.share) == pytest.approx((found.baseline, found.share), 1e-3)
    truth = (np.arange(len(NEW)) % 3 > 0).astype(int)
    found = expected_score(VALID, Y, NEW, truth, metric=metric, rarer=1, largest=1)
    assert found.baseline == pytest.approx(function(truth, np.ones(len(truth))))


def test_the_held_out_score_is_given_or_that_of_the_average() -> None:
    model, new = planted(sign_of(3), random_graph()), random_graph(seed=1)
    plain = compute(make_context(model, new))
    model.candidates_ = [Candidate("erm"), Candidate(AVERAGE, shifts={"a": 0.5, "b": 0.7})]
    auto, given = (compute(make_context(model, new, held_out=score)) for score in (None, 0.3))
    assert math.isnan(plain.held_out)
    assert (auto.held_out, auto.source) == (pytest.approx(0.6), "auto")
    assert (given.held_out, given.source) == (0.3, "held_out")


@pytest.mark.parametrize("kind", [torch.Tensor.clone, torch.Tensor.requires_grad_])
def test_tensors_give_the_result_of_arrays(kind: Callable[[torch.Tensor], torch.Tensor]) -> None:
    (logits, y), (new, truth) = labelled(200), labelled(150, seed=1)
    arrays = expected_score(logits, y, new, truth)
    tensors = [kind(torch.from_numpy(part)) for part in (logits, new)]
    y, truth = torch.from_numpy(y), torch.from_numpy(truth)
    assert expected_score(tensors[0], y, tensors[1], truth) == arrays


def test_accuracy_is_estimated_if_validation_nodes_lack_a_class() -> None:
    data = random_graph()
    model = planted(sign_of(3), data, metric="roc_auc")
    found = compute(make_context(model, random_graph(seed=1)))
    assert found.metric == "roc_auc"
    assert found.actual.value == 1
    lacking = model.reference_.valid_y.clone().zero_()
    model.reference_ = replace(model.reference_, valid_y=lacking)
    found = compute(make_context(model, random_graph(seed=1)))
    assert found.metric == "accuracy"


def test_renamed_classes_are_found() -> None:
    logits, y = labelled(400)
    assert expected_score(logits, y, logits, y).renamed is None
    classes = logits.shape[1]
    renamed = (y + 1) % classes
    found = expected_score(logits, y, logits, renamed).renamed
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
    assert swapped.names == {0: 1, 1: 0}


def test_false_alarms_of_a_rare_class_are_not_renamed_classes() -> None:
    y = np.array([1] * 40 + [0] * 1460)
    predicted = np.array([1] * 39 + [0] + [1] * 901 + [0] * 559)
    assert find_renamed_classes(predicted, y, 2) is None
    swapped = find_renamed_classes(1 - y, y, 2)
    assert swapped.names == {0: 1, 1: 0}

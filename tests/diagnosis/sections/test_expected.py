from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

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
BINARY = rare(2000, 0), rare(1500, 1)


@pytest.mark.parametrize("metric", METRICS)
def test_the_range_contains_the_value_which_is_at_most_validation(metric: str) -> None:
    for held_out in (math.nan, 0.0, 0.3, 0.8, 1.0):
        found = expected_score(*BINARY[0], BINARY[1][0], held_out=held_out, metric=metric)
        assert found.value <= found.validation
        assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize("metric", METRICS)
def test_the_estimate_is_the_mean_of_confidence_and_held_out_score(metric: str) -> None:
    plain = expected_score(*BINARY[0], BINARY[1][0], metric=metric)
    held_out = max(plain.validation - 0.3, 0.05)
    known = expected_score(*BINARY[0], BINARY[1][0], held_out=held_out, metric=metric)
    kind = expected.KINDS[metric]
    for found, estimate in ((plain, plain.confidence), (known, (plain.confidence + held_out) / 2)):
        low, centre, high = expected.ERRORS[kind, "held_out" if found is known else "confidence"]
        value = min(estimate + centre, plain.validation)
        assert found.value == pytest.approx(max(value, 0))
        assert found.low == pytest.approx(np.clip(estimate + low, 0, found.value))
        assert found.high == pytest.approx(np.clip(estimate + high, found.value, 1))


@pytest.mark.parametrize("kind", sorted(set(expected.KINDS.values())))
def test_the_range_is_wider_without_a_held_out_score(kind: str) -> None:
    known, unknown = expected.ERRORS[kind, "held_out"], expected.ERRORS[kind, "confidence"]
    assert unknown[2] - unknown[0] > known[2] - known[0]
    for low, centre, high in (known, unknown, expected.ERRORS[kind, "auto"]):
        assert low < centre < high


@pytest.mark.parametrize("gap", [True, False])
def test_a_large_expected_loss_is_a_warning(gap: bool) -> None:
    found = expected_score(*labelled(1500), labelled(1200, seed=1)[0])
    value = found.validation - expected.MAX_LOSS[found.source] + (-0.01 if gap else 0.01)
    assert replace(found, value=value).warns == gap


@pytest.mark.parametrize(("scale", "hardness"), [(1.0, 1.0), (4.0, 1.0), (1.0, 0.5)])
def test_the_calibrated_confidence_is_the_true_score_of_calibrated_nodes(
    scale: float, hardness: float
) -> None:
    """Also if the model is overconfident, or if the new nodes are harder."""
    (logits, y), hard = labelled(3000), hardness * labelled(2000, seed=1)[0]
    p = np.exp(hard) / np.exp(hard).sum(axis=1, keepdims=True)
    truth = (np.random.default_rng(0).random((2000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    found = expected_score(scale * logits, y, scale * hard, truth)
    assert found.actual is not None
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
        assert found.actual is not None
        assert found.confidence == pytest.approx(found.actual.value, abs=0.06)
        assert found.share == pytest.approx(truth[chosen].mean(), abs=0.01)
        assert found.depends_on_shares == (metric != "roc_auc")
    assert found.validation > found.actual.value + 0.02  # where positive nodes are hard to find


@pytest.mark.parametrize("metric", METRICS)
def test_the_baseline_is_the_score_of_the_same_answer_for_every_node(metric: str) -> None:
    (logits, y), same = BINARY[0], np.zeros(2000)
    found = expected_score(logits, y, logits, metric=metric)
    by_hand = {
        "accuracy": accuracy_score(y, same),
        "roc_auc": roc_auc_score(y, same),
        "macro_f1": f1_score(y, same, average="macro", zero_division=0),
        "average_precision": average_precision_score(y, same),
    }
    assert found.baseline == pytest.approx(by_hand[metric])
    for lead in (0.5, 1.5):
        value = found.baseline + lead * expected.MIN_LEAD
        assert replace(found, value=value).is_hardly_better == (lead < 1)


def test_the_rarer_class_may_be_the_first() -> None:
    (logits, y), (new, _) = BINARY
    for metric in ("average_precision", "macro_f1"):
        second = expected_score(logits, y, new, metric=metric, rarer=1)
        first = expected_score(logits[:, ::-1], 1 - y, new[:, ::-1], metric=metric, rarer=0)
        assert first.share == pytest.approx(second.share, rel=1e-3)
        assert first.baseline == pytest.approx(second.baseline)


def test_the_held_out_score_is_given_or_that_of_the_average() -> None:
    model, new = planted(sign_of(3), random_graph()), random_graph(seed=1)
    score = {"before": Candidate("erm"), AVERAGE: Candidate(AVERAGE, shifts={"a": 0.5, "b": 0.7})}

    def held_out(**known: float) -> float:
        found = compute(make_context(model, new, **known))
        assert found is not None
        return found.held_out

    assert math.isnan(held_out())
    model.candidates_ = list(score.values())
    assert held_out() == pytest.approx(0.6)
    assert held_out(held_out=0.3) == 0.3


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

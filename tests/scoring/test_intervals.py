import math

import numpy as np
import pytest
from scipy.stats import binomtest

from canet.scoring.intervals import Estimate, auroc, normal, score, share
from canet.scoring.metrics import METRICS


@pytest.mark.parametrize(("right", "of"), [(0, 20), (3, 20), (20, 20), (700, 1000)])
def test_a_share_has_the_wilson_interval(right: int, of: int) -> None:
    found = share(np.arange(of) < right)
    expected = binomtest(right, of).proportion_ci(method="wilson")
    assert found.value == pytest.approx(right / of)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_share_of_no_entries_is_nan() -> None:
    assert math.isnan(share(np.empty(0, dtype=bool)).value)


def test_intervals_contain_their_value() -> None:
    found = normal(2.0, 4.0)
    assert (found.low, found.value, found.high) == pytest.approx((-1.92, 2, 5.92), abs=0.01)
    assert normal(0.9, 1.0).clip(0, 1) == Estimate(0.9, 0, 1)


def test_auroc_has_an_interval_and_counts_ties_half() -> None:
    found = auroc(np.array([0, 0, 1]), np.array([0, 2]))
    assert found.value == pytest.approx((1 + 3) / 6)
    assert found.low < found.value < found.high


def test_each_unseen_class_of_a_label_counts_in_the_score() -> None:
    logits, y = np.array([[1.0, 0], [0, 1.0], [0, 1.0]]), np.array([0, 2, 3])
    for metric, value in (("accuracy", 1 / 3), ("macro_f1", 1 / 4)):
        found = score(METRICS[metric], logits, y)
        assert found.value == pytest.approx(value)


def test_an_undefined_score_is_none() -> None:
    logits = np.array([[1.0, 0], [0, 1.0]])
    assert score(METRICS["roc_auc"], logits, np.array([1, 1])) is None
    for metric in METRICS.values():
        assert score(metric, logits[:0], np.array([], dtype=int)) is None


@pytest.mark.parametrize("name", ["roc_auc", "average_precision"])
@pytest.mark.parametrize("shift", [0.5, 1.5, 3.0])
def test_intervals_of_few_rare_nodes_hold_the_truth(name: str, shift: float) -> None:
    random, metric = np.random.default_rng(0), METRICS[name]

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = (random.random(n) < 0.1).astype(int)
        margin = random.normal(size=n) + shift * y
        return np.stack([np.zeros(n), margin], axis=1), y

    truth = metric.pseudo_values(*draw(200_000)).mean()
    found = [score(metric, *draw(50)) for _ in range(400)]
    holds = [one.low <= truth <= one.high for one in found if one is not None]
    assert np.mean(holds) >= 0.92

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.metrics import f1_score

from canet.errors import InputError
from canet.scoring.calibration import Calibration
from canet.scoring.metrics import METRICS
from tests.support.planted import labelled


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_a_known_temperature_is_recovered(temperature: float) -> None:
    logits, y = labelled(8000)
    assert Calibration.fit_temperature(temperature * logits, y).temperature == pytest.approx(
        temperature, rel=0.05
    )


def test_the_temperature_has_the_least_loss_and_prior_of_a_grid() -> None:
    logits, y = labelled(60)

    def loss(t: float) -> float:
        likelihood = log_softmax(logits / t, axis=1)[np.arange(60), y].sum()
        return float(2 * np.log(t) ** 2 - likelihood) / 60

    best = Calibration.fit_temperature(logits, y).temperature
    assert loss(best) <= min(loss(t) for t in np.geomspace(0.1, 20, 400)) + 1e-6


@pytest.mark.parametrize("wrong", [True, False])
def test_the_temperature_of_few_nodes_stays_within_its_bounds(wrong: bool) -> None:
    logits = labelled(6)[0]
    y = logits.argmin(axis=1) if wrong else logits.argmax(axis=1)
    found = Calibration.fit_temperature(logits, y).temperature
    assert 1 < found < 5 if wrong else 0.2 < found < 1


def test_a_bias_corrects_class_weights() -> None:
    logits, y = labelled(6000)
    bias = np.array([0.0, 3.0, -1.0, 0.5])
    found = Calibration.fit_with_bias(2 * (logits + bias), y)
    assert found.temperature == pytest.approx(2, rel=0.1)
    assert np.array(found.bias) - found.bias[0] == pytest.approx(bias[0] - bias, abs=0.3)
    probabilities = softmax(found.apply(2 * (logits + bias)), axis=1)
    assert probabilities.mean(axis=0) == pytest.approx(np.bincount(y) / 6000, abs=0.01)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("weighted", [False, True])
def test_only_accuracy_without_class_weights_needs_no_bias(metric: str, weighted: bool) -> None:
    (logits, y), others = labelled(60), labelled(60, seed=1)
    found = Calibration.fit(logits, y, metric, weighted)
    assert bool(found.bias) == (weighted or metric != "accuracy")
    assert found.refit(*others) == Calibration.fit(*others, metric, weighted)


def test_two_classes_of_equal_size_have_the_second_as_the_rarer_one() -> None:
    logits, y = labelled(40)
    for counts, positive in (([10, 10], 1), ([3, 10], 0)):
        found = Calibration().with_threshold(logits[:, :2], y % 2, np.array(counts))
        assert found.rarer() == positive
    with pytest.raises(InputError, match="two classes"):
        Calibration().rarer()


def test_a_class_that_is_never_likely_has_the_usual_threshold() -> None:
    certain = np.array([[50.0, 0.0], [60.0, 0.0]])
    found = Calibration().with_threshold(certain, np.array([0, 1]), np.array([10, 2]))
    assert (found.threshold, found.positive) == (0.5, 1)


@pytest.mark.parametrize("seed", range(6))
def test_the_threshold_has_the_best_f1_also_after_rounding(seed: int) -> None:
    random = np.random.default_rng(seed)
    y = (random.random(60) < 0.3).astype(int)
    margin = random.normal(size=60) + y
    found = Calibration().with_threshold(
        np.stack([0 * margin, margin], axis=1), y, np.array([3, 1])
    )
    p = 1 / (1 + np.exp(-margin))
    best = max(f1_score(y, p >= limit) for limit in p)
    for rounded in (p, np.nextafter(p, 0), np.nextafter(p, 1), p.astype(np.float32)):
        assert f1_score(y, rounded >= found.threshold) == best

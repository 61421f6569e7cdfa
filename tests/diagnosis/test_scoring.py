from __future__ import annotations

import numpy as np
import pytest
import torch

from canet.diagnosis.scoring import pseudo_values, score
from canet.training.metrics import METRICS

CASES = [("accuracy", 2), ("accuracy", 4), ("macro_f1", 2), ("macro_f1", 4), ("roc_auc", 2)]
CASES.append(("average_precision", 2))


def nodes(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits with ties, and labels that agree with them more often than not."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(n, classes)).round(1)
    return logits, (logits + random.normal(size=(n, classes))).argmax(axis=1)


@pytest.mark.parametrize(("metric", "classes"), CASES)
def test_the_score_is_that_of_training(metric: str, classes: int) -> None:
    logits, y = nodes(300, classes)
    found = score(metric, logits, y)
    expected = METRICS[metric](torch.from_numpy(logits), torch.from_numpy(y))
    assert found is not None
    assert found.value == pytest.approx(float(expected))


@pytest.mark.parametrize(("metric", "classes"), CASES)
def test_pseudo_values_have_the_variance_of_the_score(metric: str, classes: int) -> None:
    parts = [pseudo_values(metric, *nodes(200, classes, seed)) for seed in range(300)]
    spread = np.std([part.mean() for part in parts])
    assert np.mean([part.std() for part in parts]) / np.sqrt(200) == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize(("metric", "classes"), CASES)
def test_probabilities_of_labels_give_the_mean_over_drawn_labels(metric: str, classes: int) -> None:
    random = np.random.default_rng(0)
    logits = nodes(400, classes)[0]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    drawn = [
        pseudo_values(metric, logits, np.array([random.choice(classes, p=row) for row in p])).mean()
        for _ in range(30)
    ]
    assert pseudo_values(metric, logits, p).mean() == pytest.approx(np.mean(drawn), abs=0.02)


def test_labels_of_an_unknown_class_count_as_wrong() -> None:
    logits, y = np.array([[1.0, 0], [0, 1.0]]), np.array([0, 2])
    for metric, value in (("accuracy", 1 / 2), ("macro_f1", 1 / 3)):
        found = score(metric, logits, y)
        assert found is not None
        assert found.value == pytest.approx(value)


def test_an_undefined_score_is_none() -> None:
    logits = np.array([[1.0, 0], [0, 1.0]])
    assert score("roc_auc", logits, np.array([1, 1])) is None
    for metric in METRICS:
        assert score(metric, logits[:0], np.array([], dtype=int)) is None

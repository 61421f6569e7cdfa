from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score
from torch import Tensor

from canet.scoring.metrics import METRICS
from tests.support.tiny import tiny_task

CASES = [(name, c) for name, metric in METRICS.items() for c in ((2,) if metric.ranks else (2, 4))]

SKLEARN = {
    "accuracy": accuracy_score,
    "roc_auc": roc_auc_score,
    "macro_f1": partial(f1_score, average="macro", zero_division=0),
    "average_precision": average_precision_score,
}


def draw(seed: int, n: int, classes: int, decimals: int = 6) -> tuple[Tensor, Tensor]:
    """Logits, with ties if rounded to few decimals, and labels of all classes."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=random).round(decimals=decimals)
    y = torch.randint(classes, (n,), generator=random)
    y[:classes] = torch.arange(classes)
    return logits, y


@pytest.mark.parametrize("decimals", [0, 1, 6], ids=["many-ties", "some-ties", "no-ties"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("name", "classes"), CASES)
def test_metrics_equal_those_of_scikit_learn(
    name: str, classes: int, seed: int, decimals: int
) -> None:
    logits, y = draw(seed, 211, classes, decimals)
    for positive in (0, 1) if METRICS[name].of_rarer else (1,):
        y[50:] = 1 - positive if METRICS[name].of_rarer else y[50:]
        scores = logits[:, positive] - logits[:, 1 - positive]
        found = METRICS[name].of_class(positive)(logits, y)
        if METRICS[name].ranks:
            expected = SKLEARN[name](y == positive, scores)
        else:
            expected = SKLEARN[name](y, logits.argmax(dim=1))
        assert found.item() == pytest.approx(expected, abs=1e-10)


def test_average_precision_is_that_of_the_class_which_is_rarer_in_training() -> None:
    task = tiny_task(num_classes=2, metric="average_precision")
    logits, y = draw(3, task.num_nodes, 2)
    y[task.train] = (torch.arange(task.train.numel()) % 4 == 0).long()  # class 1 is rare
    y[task.valid] = (torch.arange(task.valid.numel()) % 4 > 0).long()  # but not here
    task = replace(task, data=replace(task.data, y=y))
    nodes = task.valid
    expected = average_precision_score(y[nodes], logits[nodes, 1] - logits[nodes, 0])
    assert float(task.scorer(logits[nodes], y[nodes])) == pytest.approx(expected)


def test_roc_auc_stays_exact_on_many_nodes() -> None:
    logits, y = draw(0, 200_000, 2, 3)
    expected = roc_auc_score(y, logits[:, 1] - logits[:, 0])
    assert METRICS["roc_auc"](logits, y).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("name", ["roc_auc", "average_precision"])
def test_rankings_of_one_class_are_undefined(name: str, label: int) -> None:
    assert METRICS[name](torch.randn(5, 2), torch.full((5,), label)).isnan()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("absent_from", ["labels", "predictions", "both"])
def test_macro_f1_equals_scikit_learn_if_a_class_is_absent(seed: int, absent_from: str) -> None:
    logits, y = draw(seed, 60, 4)
    if absent_from in ("labels", "both"):
        y[y == 2] = 0
    if absent_from in ("predictions", "both"):
        logits[:, 2] = -100
    predicted = logits.argmax(dim=1)
    assert ((y == 2).any(), (predicted == 2).any()) == {
        "labels": (False, True),
        "predictions": (True, False),
        "both": (False, False),
    }[absent_from]
    assert METRICS["macro_f1"](logits, y).item() == pytest.approx(SKLEARN["macro_f1"](y, predicted))


@pytest.mark.parametrize("name", METRICS)
def test_scores_are_doubles_and_independent_of_the_order_of_nodes(name: str) -> None:
    logits, y = draw(1, 50, 2)
    order = torch.from_numpy(np.random.default_rng(0).permutation(50))
    score = METRICS[name](logits, y)
    assert score.dtype == torch.double
    assert score.shape == ()
    assert 0.2 < score < 0.8
    torch.testing.assert_close(METRICS[name](logits[order], y[order]), score)


def labelled(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits with ties, and labels that agree with them more often than not."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(n, classes)).round(1)
    return logits, (logits + random.normal(size=(n, classes))).argmax(axis=1)


@pytest.mark.parametrize(("name", "classes"), CASES)
def test_pseudo_values_have_the_mean_and_the_variance_of_the_score(name: str, classes: int) -> None:
    parts = []
    for seed in range(300):
        logits, y = labelled(200, classes, seed)
        parts.append(METRICS[name].pseudo_values(logits, y))
        expected = METRICS[name](torch.from_numpy(logits), torch.from_numpy(y))
        assert parts[-1].mean() == pytest.approx(float(expected))
    spread = np.std([part.mean() for part in parts])
    assert np.mean([part.std() for part in parts]) / np.sqrt(200) == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize(("name", "classes"), CASES)
def test_probabilities_of_labels_give_the_mean_over_drawn_labels(name: str, classes: int) -> None:
    random, metric = np.random.default_rng(0), METRICS[name]
    logits = labelled(400, classes)[0]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    drawn = [
        metric.pseudo_values(logits, np.array([random.choice(classes, p=row) for row in p])).mean()
        for _ in range(30)
    ]
    assert metric.pseudo_values(logits, p).mean() == pytest.approx(np.mean(drawn), abs=0.02)

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score
from torch import Tensor

from canet.data.graph_data import GraphData
from canet.data.metrics import METRICS
from tests.support.tiny import tiny_task

CASES = [(name, c) for name, metric in METRICS.items() for c in ((2,) if metric.ranks else (2, 4))]

SEEDS = range(5)


def draw(seed: int, n: int, classes: int, decimals: int = 6) -> tuple[Tensor, Tensor]:
    """Logits, with ties if rounded to few decimals, and labels of all classes."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=random).round(decimals=decimals)
    y = torch.randint(classes, (n,), generator=random)
    y[:classes] = torch.arange(classes)
    return logits, y


def sklearn_f1(y: Tensor, predicted: Tensor) -> float:
    return float(f1_score(y.numpy(), predicted.numpy(), average="macro", zero_division=0))


@pytest.mark.parametrize("seed", SEEDS)
def test_accuracy_equals_scikit_learn(seed: int) -> None:
    logits, y = draw(seed, 173, 4)
    expected = accuracy_score(y, logits.argmax(dim=1))
    assert METRICS["accuracy"](logits, y).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("decimals", [0, 1, 6], ids=["many-ties", "some-ties", "no-ties"])
@pytest.mark.parametrize("seed", SEEDS)
def test_roc_auc_equals_scikit_learn(seed: int, decimals: int) -> None:
    logits, y = draw(seed, 211, 2, decimals)
    expected = roc_auc_score(y, logits[:, 1] - logits[:, 0])
    assert METRICS["roc_auc"](logits, y).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("rare", [0, 1])
@pytest.mark.parametrize("decimals", [0, 1, 6], ids=["many-ties", "some-ties", "no-ties"])
@pytest.mark.parametrize("seed", SEEDS)
def test_average_precision_of_the_rarer_class_equals_scikit_learn(
    seed: int, decimals: int, rare: int
) -> None:
    logits, y = draw(seed, 211, 2, decimals)
    y[50:] = 1 - rare
    scores = logits[:, rare] - logits[:, 1 - rare]
    expected = average_precision_score(y == rare, scores)
    metric = METRICS["average_precision"].of_class(rare)
    assert metric(logits, y).item() == pytest.approx(expected, abs=1e-10)


def test_average_precision_is_that_of_the_class_which_is_rarer_in_training() -> None:
    task = tiny_task(num_classes=2, metric="average_precision")
    logits, y = draw(3, task.num_nodes, 2)
    y[task.train] = (torch.arange(task.train.numel()) % 4 == 0).long()  # class 1 is rare
    y[task.valid] = (torch.arange(task.valid.numel()) % 4 > 0).long()  # but not here
    task = replace(task, data=GraphData(**task.data.to_dict() | {"y": y}))
    nodes = task.valid
    expected = average_precision_score(y[nodes], logits[nodes, 1] - logits[nodes, 0])
    assert float(task.scorer(logits[nodes], y[nodes])) == pytest.approx(expected)


def test_average_precision_of_one_class_is_undefined() -> None:
    for label in (0, 1):
        assert METRICS["average_precision"](torch.randn(5, 2), torch.full((5,), label)).isnan()


def test_roc_auc_stays_exact_on_many_nodes() -> None:
    logits, y = draw(0, 200_000, 2, 3)
    expected = roc_auc_score(y, logits[:, 1] - logits[:, 0])
    assert METRICS["roc_auc"](logits, y).item() == pytest.approx(expected, abs=1e-10)


def test_roc_auc_of_perfect_reversed_and_constant_scores() -> None:
    y = torch.tensor([0, 0, 1, 1])
    up = torch.tensor([[0.0, -2], [0, -1], [0, 1], [0, 2]])
    assert METRICS["roc_auc"](up, y).item() == 1
    assert METRICS["roc_auc"](-up, y).item() == 0
    assert METRICS["roc_auc"](torch.zeros(4, 2), y).item() == 0.5


@pytest.mark.parametrize("label", [0, 1])
def test_roc_auc_of_one_class_is_not_a_number(label: int) -> None:
    assert METRICS["roc_auc"](torch.randn(5, 2), torch.full((5,), label)).isnan()


@pytest.mark.parametrize("seed", SEEDS)
def test_macro_f1_equals_scikit_learn(seed: int) -> None:
    logits, y = draw(seed, 97, 5)
    assert METRICS["macro_f1"](logits, y).item() == pytest.approx(
        sklearn_f1(y, logits.argmax(dim=1))
    )


@pytest.mark.parametrize("seed", SEEDS)
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
    assert METRICS["macro_f1"](logits, y).item() == pytest.approx(sklearn_f1(y, predicted))


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

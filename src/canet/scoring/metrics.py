"""Predictions and labels become a score between 0 and 1. A new metric is one entry of `METRICS`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from canet.errors import InputError, check_integer, warn_user


@dataclass(frozen=True)
class Metric:
    r"""A score of predicted nodes."""

    name: str  # name in settings
    label: str  # name in reports
    # Predicted classes $[n]$, labels $[n]$ and the number of classes → score. For a metric that
    # ranks: margins $[n]$, and whether each node is positive. It runs on the device of its
    # arguments without a synchronisation.
    function: Callable[..., Tensor]
    # Predicted classes $[n]$ and the probability $[n, C]$ of each label → pseudo-values $[n]$; see
    # `pseudo_values`. For a metric that ranks: margins $[n]$ and the probabilities $[n]$ of a
    # positive and of a negative label.
    influence: Callable[..., np.ndarray]
    # Whether it ranks the nodes of two classes by their margin: the logit of the positive class
    # minus that of the other. It is NaN if a class is absent.
    ranks: bool = False
    of_rarer: bool = False  # whether the positive class is the one that is rarer in training
    positive: int = 1  # the positive class

    def of_class(self, rarer: int | None) -> Self:
        """Return the metric for a task whose training nodes have this rarer class."""
        return replace(self, positive=rarer) if self.of_rarer and rarer is not None else self

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the score of logits $[n, C]$ for labels $[n]$, all among the C classes."""
        if self.ranks:
            margin = logits[:, self.positive] - logits[:, 1 - self.positive]
            return self.function(margin, y == self.positive)
        return self.function(logits.argmax(dim=1), y, logits.shape[1])

    def pseudo_values(self, logits: np.ndarray, y: np.ndarray) -> np.ndarray:
        r"""Pseudo-values $[n]$: their mean is the score, their variance over $n$ its variance.

        A pseudo-value is the score plus the influence of the node on the score.

        Args:
            logits: $[n, C]$, up to a constant per node.
            y: Class indices $[n]$, or class probabilities $[n, C]$. With probabilities, the result
                is the expected score for labels that are drawn from them.
        """
        classes = max(logits.shape[1], int(y.max(initial=0)) + 1)
        labels = np.eye(classes)[y] if y.ndim == 1 else y
        if self.ranks:
            yes, no = self.positive, 1 - self.positive
            return self.influence(logits[:, yes] - logits[:, no], labels[:, yes], labels[:, no])
        return self.influence(logits.argmax(axis=1), labels)


def finite_score(metric: Metric, logits: Tensor, y: Tensor) -> Tensor:
    """Return the score of logits $[n, C]$, on their device; NaN if one of them is not finite."""
    return torch.where(logits.isfinite().all(), metric(logits, y), torch.nan)


def rarer_class(label_counts: Tensor | np.ndarray) -> int:
    """Return the rarer of two classes with these counts $[2]$; the second if both are equal."""
    return 0 if label_counts[0] < label_counts[1] else 1


def accuracy(predicted: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """Share of nodes whose predicted class is their label."""
    return (predicted == y).double().mean()


def macro_f1(predicted: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """Mean F1 score over the classes that occur in the labels or the predictions."""
    rows = torch.cat([y + (predicted == y) * num_classes, predicted + 2 * num_classes])
    counts = torch.zeros(3 * num_classes, dtype=torch.double, device=y.device)
    counts.index_add_(0, rows, counts.new_ones(()).expand(rows.numel()))
    hits, total = counts[num_classes : 2 * num_classes], counts.view(3, num_classes).sum(dim=0)
    present = total > 0
    f1 = torch.where(present, 2 * hits / total.clamp(min=1), 0.0)
    return f1.sum() / present.sum()


def roc_auc(margin: Tensor, positive: Tensor) -> Tensor:
    """Probability that a positive node outranks a negative one, ties counting half."""
    score = margin.double()
    ordered = score.sort().values
    below, up_to = (torch.searchsorted(ordered, score, right=side) for side in (False, True))
    mean_rank = (below + up_to + 1).double() / 2
    num_positive, num_negative = positive.double().sum(), (~positive).double().sum()
    rank_sum = (mean_rank * positive).sum()
    wins = rank_sum - num_positive * (num_positive + 1) / 2
    return wins / (num_positive * num_negative)


def average_precision(margin: Tensor, positive: Tensor) -> Tensor:
    """Mean precision over the positive nodes, each among the nodes that rank at least as high."""
    ordered, order = margin.double().sort()
    # The first node with the same score; a NaN is above all scores.
    first = torch.searchsorted(ordered, ordered).clamp(max=ordered.numel() - 1)
    hits = positive[order].double()
    from_here = hits.flip(0).cumsum(0).flip(0)
    precision = from_here[first] / (positive.numel() - first)
    both = positive.any() & ~positive.all()
    return torch.where(both, (precision * hits).sum() / hits.sum(), torch.nan)


def _accuracy_influence(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """1 for a correct prediction and 0 for a wrong one."""
    return np.asarray(labels[np.arange(len(labels)), predicted])


def _f1_influence(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Macro F1 over the classes in the predictions or the labels."""
    chosen = np.eye(labels.shape[1])[predicted]
    both = chosen + labels
    total = both.sum(axis=0)
    present = total > 0
    both, total, hits = both[:, present], total[present], (chosen * labels)[:, present]
    f1 = 2 * hits.sum(axis=0) / total
    return np.asarray(f1.mean() + ((2 * hits - f1 * both) * (len(both) / total)).mean(axis=1))


def _auc_influence(scores: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """ROC-AUC, with the variance of DeLong et al. (Biometrics '88)."""
    n, num_positive, num_negative = len(scores), positive.sum(), negative.sum()
    if not num_positive or not num_negative:
        return np.full(n, np.nan)
    _, rank = np.unique(scores, return_inverse=True)
    positives, negatives = (np.bincount(rank, weights=part) for part in (positive, negative))
    below = ((np.cumsum(negatives) - negatives / 2) / num_negative)[rank]
    above = ((num_positive - np.cumsum(positives) + positives / 2) / num_positive)[rank]
    auc = (positive * below).sum() / num_positive
    of_positive = n / num_positive * positive * (below - auc)
    of_negative = n / num_negative * negative * (above - auc)
    return np.asarray(auc + (of_positive + of_negative))


def _precision_influence(
    scores: np.ndarray, positive: np.ndarray, negative: np.ndarray
) -> np.ndarray:
    """Average precision, with its derivative by the weight of the node."""
    num_positive, weight = positive.sum(), positive + negative
    if not num_positive or not negative.sum():
        return np.full(len(scores), np.nan)
    _, rank = np.unique(-scores, return_inverse=True)  # 0 is the highest score
    hits, nodes = (np.cumsum(np.bincount(rank, weights=part)) for part in (positive, weight))
    share = np.bincount(rank, weights=positive) / num_positive
    average = float((share * hits / nodes).sum())
    # Derivatives of the precision at each threshold that a node with this score is above.
    gain, loss = (np.cumsum(part[::-1])[::-1] for part in (share / nodes, share * hits / nodes**2))
    own = positive * ((hits / nodes)[rank] - average) / num_positive
    return average + len(scores) * (own + positive * gain[rank] - weight * loss[rank])


METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", accuracy, _accuracy_influence),
        Metric("roc_auc", "ROC-AUC", roc_auc, _auc_influence, ranks=True),
        Metric("macro_f1", "macro F1", macro_f1, _f1_influence),
        Metric(
            "average_precision",
            "average precision",
            average_precision,
            _precision_influence,
            ranks=True,
            of_rarer=True,
        ),
    )
}


def check_scorable(metric: str, y: Tensor, num_classes: int) -> None:
    """Reject labels that the metric cannot score, and warn about unseen classes."""
    unseen = int((y >= num_classes).sum())
    if unseen and METRICS[metric].ranks:
        raise InputError(
            f"y contains a third class, but {metric} is for two classes: remove the labels of the "
            "classes that did not occur in training"
        )
    if unseen:
        warn_user(
            f"{unseen:,} nodes have a class that did not occur in training, which counts as wrong"
        )


@dataclass(frozen=True)
class Outcome:
    """Predictions of labelled nodes."""

    predicted: Tensor  # predicted class ids $[n]$
    margin: Tensor  # logit of the second class minus that of the first $[n]$
    y: Tensor  # class ids $[n]$ of the labels; C, C + 1, ... if they did not occur in training
    num_classes: int  # number of classes C in training
    rarer: int | None = None  # the rarer class in training, if there are two

    def score(self, metric: str) -> float:
        """Return the metric, which scikit-learn would compute from the names of the classes."""
        found = METRICS[metric].of_class(self.rarer)
        if found.ranks:
            margin = self.margin if found.positive else -self.margin
            return float(found.function(margin, self.y == found.positive))
        num_classes = max(self.num_classes, int(self.y.max()) + 1)
        return float(found.function(self.predicted, self.y, num_classes))

    def recall_at_k(self, k: int) -> float:
        """Return the recall of the rarer class among the k nodes that most likely have it."""
        check_integer("k", k, 1)
        is_positive = self.y == int(self.rarer or 0)
        ranked = self.margin if self.rarer else -self.margin
        top = ranked.argsort(descending=True, stable=True)[:k]
        return float(is_positive[top].sum() / is_positive.sum())

"""Predictions and labels become a score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from canet.errors import InputError, warn_user
from canet.scoring.metrics import METRICS


def check_scorable(metric: str, y: Tensor, num_classes: int) -> None:
    """Reject labels that the metric cannot score, and warn about unseen classes.

    Arguments as for `Outcome`.
    """
    unseen = int((y >= num_classes).sum())
    if unseen and METRICS[metric].ranks:
        raise InputError(f"y contains a third class, but {metric} is for two classes")
    if unseen:
        warn_user(
            f"{unseen:,} nodes have a class that did not occur in training: their predictions "
            "count as wrong"
        )


def check_recall(y: Tensor, positive: int) -> None:
    """Reject labels $[n]$ without the class that `Outcome.recall_at_k` searches."""
    if not (y == positive).any():
        raise InputError("no labelled node has the rarer class: recall needs one")


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
        if not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k is {k!r}: pass the number of nodes, 1 or more")
        is_positive = self.y == int(self.rarer or 0)
        ranked = self.margin if self.rarer else -self.margin
        top = ranked.argsort(descending=True, stable=True)[:k]
        return float(is_positive[top].sum() / is_positive.sum())

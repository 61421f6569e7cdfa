"""Scores between 0 and 1, computed on the device of the logits without a synchronisation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Share of nodes whose largest logit $[n, C]$ belongs to their label $[n]$."""
    return (logits.argmax(dim=1) == y).double().mean()


def roc_auc(logits: Tensor, y: Tensor) -> Tensor:
    """Probability that a positive node outranks a negative one, ties counting half.

    For two classes; a node's rank is that of its logit difference. NaN if a class is absent.
    """
    score = (logits[:, 1] - logits[:, 0]).double()
    ordered = score.sort().values
    below, up_to = (torch.searchsorted(ordered, score, right=side) for side in (False, True))
    mean_rank = (below + up_to + 1).double() / 2
    positive = y == 1
    num_positive, num_negative = positive.double().sum(), (~positive).double().sum()
    rank_sum = (mean_rank * positive).sum()
    wins = rank_sum - num_positive * (num_positive + 1) / 2
    return wins / (num_positive * num_negative)


def average_precision(logits: Tensor, y: Tensor) -> Tensor:
    """Mean precision over the nodes of the rarer of two classes, each at its own threshold.

    The precision at a node is the share of that class among the nodes that rank at least as high.
    NaN if a class is absent.
    """
    is_second_rarer = (y == 1).double().mean() <= 0.5
    positive = (y == 1) == is_second_rarer
    score = (logits[:, 1] - logits[:, 0]).double()
    ordered, order = torch.where(is_second_rarer, score, -score).sort()
    first = torch.searchsorted(ordered, ordered)  # the first node with the same score
    hits = positive[order].double()
    from_here = hits.flip(0).cumsum(0).flip(0)
    precision = from_here[first] / (y.numel() - first)
    both = positive.any() & ~positive.all()
    return torch.where(both, (precision * hits).sum() / hits.sum(), torch.nan)


def macro_f1(logits: Tensor, y: Tensor) -> Tensor:
    """Mean F1 score over the classes that occur in the labels or the predictions."""
    classes = logits.shape[1]
    pairs = torch.zeros(classes * classes, dtype=torch.double, device=y.device)
    pairs.index_add_(0, y * classes + logits.argmax(dim=1), pairs.new_ones(()).expand(y.numel()))
    confusion = pairs.view(classes, classes)
    hits, total = confusion.diagonal(), confusion.sum(dim=0) + confusion.sum(dim=1)
    present = total > 0
    f1 = torch.where(present, 2 * hits / total.clamp(min=1), 0.0)
    return f1.sum() / present.sum()


METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "accuracy": accuracy,
    "roc_auc": roc_auc,
    "macro_f1": macro_f1,
    "average_precision": average_precision,
}

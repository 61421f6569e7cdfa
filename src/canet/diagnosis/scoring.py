"""Metrics with confidence intervals, computed from one pseudo-value per node."""

from __future__ import annotations

import numpy as np

from canet.diagnosis.estimate import Estimate, normal, share


def score(metric: str, logits: np.ndarray, y: np.ndarray) -> Estimate | None:
    """Metric between 0 and 1; None if undefined (no nodes, or ROC-AUC with a missing class)."""
    if not len(y) or np.isnan(values := pseudo_values(metric, logits, y)).any():
        return None
    if metric == "accuracy":
        return share(values > 0)
    return normal(float(values.mean()), float(values.var()) / len(values)).clip(0, 1)


def pseudo_values(metric: str, logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    r"""Pseudo-values $[n]$: their mean is the metric, their variance over $n$ its variance.

    A pseudo-value is the metric plus the influence of the node on the metric. For accuracy it is 1
    for a correct prediction and 0 for a wrong one. For ROC-AUC it gives the variance of DeLong et
    al. (Biometrics '88). For average precision it is the derivative by the weight of the node.

    Args:
        metric: Name of a metric, as in `canet.training.metrics`.
        logits: $[n, C]$, up to a constant per node.
        y: Class indices $[n]$, or class probabilities $[n, C]$. With probabilities, the result is
            the expected metric for labels that are drawn from them.
    """
    predicted = logits.argmax(axis=1)
    if metric == "accuracy":
        correct = y == predicted if y.ndim == 1 else y[np.arange(len(y)), predicted]
        return np.asarray(correct, dtype=float)
    classes = max(logits.shape[1], int(y.max(initial=0)) + 1)
    labels = np.eye(classes)[y] if y.ndim == 1 else y
    if metric == "roc_auc":
        return _auc_pseudo_values(logits[:, 1] - logits[:, 0], labels[:, 1], labels[:, 0])
    if metric == "average_precision":
        scores, (negative, positive) = logits[:, 1] - logits[:, 0], labels.T[:2]
        if positive.sum() > negative.sum():
            return _precision_pseudo_values(-scores, negative, positive)
        return _precision_pseudo_values(scores, positive, negative)
    return _f1_pseudo_values(np.eye(labels.shape[1])[predicted], labels)


def _auc_pseudo_values(
    scores: np.ndarray, positive: np.ndarray, negative: np.ndarray
) -> np.ndarray:
    """ROC-AUC of scores $[n]$, given the probabilities of a positive and a negative label."""
    n, num_positive, num_negative = len(scores), positive.sum(), negative.sum()
    if not num_positive or not num_negative:
        return np.full(n, np.nan)
    _, rank = np.unique(scores, return_inverse=True)
    positives, negatives = (np.bincount(rank, weights=part) for part in (positive, negative))
    below = ((np.cumsum(negatives) - negatives / 2) / num_negative)[rank]
    above = ((num_positive - np.cumsum(positives) + positives / 2) / num_positive)[rank]
    auc = (positive * below).sum() / num_positive
    values = n / num_positive * positive * (below - auc) + n / num_negative * negative * (
        above - auc
    )
    return np.asarray(auc + values)


def _precision_pseudo_values(
    scores: np.ndarray, positive: np.ndarray, negative: np.ndarray
) -> np.ndarray:
    """Average precision of scores $[n]$, given the probabilities of both labels $[n]$."""
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


def _f1_pseudo_values(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Macro F1 of one-hot predictions and labels $[n, C]$, over the classes in either."""
    both = predicted + labels
    total = both.sum(axis=0)
    present = total > 0
    both, total, hits = both[:, present], total[present], (predicted * labels)[:, present]
    f1 = 2 * hits.sum(axis=0) / total
    return np.asarray(f1.mean() + ((2 * hits - f1 * both) * (len(both) / total)).mean(axis=1))

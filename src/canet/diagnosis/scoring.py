"""A model's metric on some nodes, written as the mean of one part for each node."""

from __future__ import annotations

import numpy as np

from canet.diagnosis.estimate import Estimate, normal, share


def score(metric: str, logits: np.ndarray, y: np.ndarray) -> Estimate | None:
    """The metric, 0 to 1; None where it is undefined: no nodes, or a class without nodes."""
    if not len(y) or np.isnan(parts := score_parts(metric, logits, y)).any():
        return None
    if metric == "accuracy":
        return share(parts > 0)
    return normal(float(parts.mean()), float(parts.var()) / len(parts)).within(0, 1)


def score_parts(metric: str, logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    r"""Parts $[n]$ whose mean is the metric, from 0 to 1, and whose variance over $n$ is its own.

    A part is the metric plus the influence of the node on it. For accuracy it is whether the node
    is right; for ROC-AUC it gives the variance of DeLong et al. (Biometrics '88).

    Args:
        metric: `accuracy`, `roc_auc` or `macro_f1`, as in `canet.training.metrics`.
        logits: $[n, C]$, less any number for each node.
        y: Class numbers $[n]$, or probabilities $[n, C]$ of the labels: the parts are then of the
            metric that labels drawn from them are expected to have.
    """
    predicted = logits.argmax(axis=1)
    if metric == "accuracy":
        hit = y == predicted if y.ndim == 1 else y[np.arange(len(y)), predicted]
        return np.asarray(hit, dtype=float)
    classes = max(logits.shape[1], int(y.max(initial=0)) + 1)
    labels = np.eye(classes)[y] if y.ndim == 1 else y
    if metric == "roc_auc":
        return _auc_parts(logits[:, 1] - logits[:, 0], labels[:, 1], labels[:, 0])
    return _f1_parts(np.eye(labels.shape[1])[predicted], labels)


def _auc_parts(value: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Of values $[n]$ with the probability of being positive, and that of being negative."""
    n, m, k = len(value), positive.sum(), negative.sum()
    if not m or not k:
        return np.full(n, np.nan)
    _, place = np.unique(value, return_inverse=True)
    ups, downs = (np.bincount(place, weights=part) for part in (positive, negative))
    below = ((np.cumsum(downs) - downs / 2) / k)[place]
    above = ((m - np.cumsum(ups) + ups / 2) / m)[place]
    auc = (positive * below).sum() / m
    return np.asarray(auc + n / m * positive * (below - auc) + n / k * negative * (above - auc))


def _f1_parts(guess: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of predicted classes and labels $[n, C]$, over classes that are present in either."""
    both = guess + labels
    total = both.sum(axis=0)
    present = total > 0
    both, total, hits = both[:, present], total[present], (guess * labels)[:, present]
    f1 = 2 * hits.sum(axis=0) / total
    return np.asarray(f1.mean() + ((2 * hits - f1 * both) * (len(both) / total)).mean(axis=1))

"""Estimates with 95 % confidence intervals."""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.stats import norm, rankdata, t

from canet.scoring.metrics import Metric

Value = TypeVar("Value", float, np.ndarray)
QUANTILE = float(norm.ppf(0.975))  # of a 95 % interval


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def clip(self, minimum: float, maximum: float) -> "Estimate":
        """Return the estimate with value and interval clipped to a range."""
        return Estimate(*np.clip([self.value, self.low, self.high], minimum, maximum).tolist())


def share(hits: np.ndarray) -> Estimate:
    """Share of true entries $[n]$ with the Wilson interval; NaN if there are no entries."""
    if not hits.size:
        return Estimate(math.nan, math.nan, math.nan)
    return wilson(float(np.mean(hits)), hits.size)


def wilson(share: float, size: float, quantile: float = QUANTILE) -> Estimate:
    """Wilson interval of a share among `size` independent samples.

    Unlike the normal interval, it has a positive width if the share is 0 or 1. scipy only supports
    an integer `size`; an effective sample size is a real number.
    """
    z = quantile**2 / size
    centre = (share + z / 2) / (1 + z)
    half = math.sqrt(z * share * (1 - share) + z**2 / 4) / (1 + z)
    low, high = min(centre - half, share), max(centre + half, share)
    return Estimate(share, max(low, 0.0), min(high, 1.0))


def normal(value: float, variance: float) -> Estimate:
    """Normal interval of a mean with known variance."""
    half = QUANTILE * math.sqrt(variance)
    return Estimate(value, value - half, value + half)


def score(metric: Metric, logits: np.ndarray, y: np.ndarray) -> Estimate | None:
    """Metric of logits $[n, C]$ and labels $[n]$; None if undefined (no nodes, a missing class)."""
    if not len(y) or np.isnan(values := metric.pseudo_values(logits, y)).any():
        return None
    if metric.name == "accuracy":
        return share(values > 0)
    if metric.ranks:
        return _ranking_score(values, min(np.bincount(y)))
    return normal(float(values.mean()), float(values.var()) / len(values)).clip(0, 1)


def _ranking_score(values: np.ndarray, fewer: int) -> Estimate:
    """Wilson interval of the mean of pseudo-values $[n]$, for n nodes with `fewer` of one class.

    Its size is that of a share with the same variance. With few nodes of a class, this variance is
    itself uncertain: the quantile is that of Student's t. If all pseudo-values are the same, the
    size is the number of nodes of that class.
    """
    value, variance = float(values.mean()), float(values.var()) / len(values)
    size = min(value * (1 - value) / variance, len(values)) if variance > 1e-12 else fewer
    return wilson(value, size, float(t.ppf(0.975, max(1, fewer - 1))))


def auroc(lower: np.ndarray, higher: np.ndarray) -> Estimate:
    """AUC between two samples $[n]$ and $[m]$ with its normal interval."""
    value = auc(lower, higher)
    return normal(value, auc_variance(value, lower.size, higher.size)).clip(0, 1)


def auc(lower: np.ndarray, higher: np.ndarray) -> float:
    """Probability that a value of `higher` $[m]$ exceeds one of `lower` $[n]$; ties count half."""
    wins = rankdata(np.concatenate([higher, lower]))[: higher.size].sum()
    wins -= higher.size * (higher.size + 1) / 2
    return float(wins / (higher.size * lower.size))


def auc_variance(auc: Value, first: int, second: int) -> Value:
    """Variance of an AUC between samples of these sizes (Hanley and McNeil, Radiology '82)."""
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = auc * (1 - auc) + (first - 1) * (q1 - auc**2) + (second - 1) * (q2 - auc**2)
    return np.maximum(0.0, spread / (first * second))

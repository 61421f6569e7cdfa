"""A number with the interval that sampling leaves around it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

QUANTILE = float(norm.ppf(0.975))  # for intervals of 95 %


@dataclass(frozen=True)
class Estimate:
    """A value and the 95 % interval around it."""

    value: float
    low: float
    high: float

    def within(self, least: float, most: float) -> Estimate:
        """The same, cut to what the quantity can be."""
        return Estimate(*np.clip([self.value, self.low, self.high], least, most).tolist())


def share(hits: np.ndarray) -> Estimate:
    """The share of true entries $[n]$, with Wilson's interval; NaN for no entries."""
    if not hits.size:
        return Estimate(math.nan, math.nan, math.nan)
    return wilson(float(np.mean(hits)), hits.size)


def wilson(part: float, size: float) -> Estimate:
    """Wilson's interval of a part of `size` independent draws.

    Unlike the normal interval it has a width where all or none are hit. scipy has it for whole
    numbers of draws; an effective number of draws is a fraction.
    """
    z = QUANTILE**2 / size
    centre = (part + z / 2) / (1 + z)
    half = math.sqrt(z * part * (1 - part) + z**2 / 4) / (1 + z)
    low, high = min(centre - half, part), max(centre + half, part)
    return Estimate(part, max(low, 0.0), min(high, 1.0))


def normal(value: float, variance: float) -> Estimate:
    """The interval of a mean whose variance is known."""
    half = QUANTILE * math.sqrt(variance)
    return Estimate(value, value - half, value + half)


def percentiles(value: float, resampled: np.ndarray) -> Estimate:
    """The interval that contains 95 % of a bootstrap's values $[B]$."""
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Estimate(value, min(float(low), value), max(float(high), value))


def auroc(lower: np.ndarray, higher: np.ndarray) -> Estimate:
    """The AUC of two samples $[n]$ and $[m]$ with its interval."""
    value = auc(lower, higher)
    return normal(value, auc_variance(value, lower.size, higher.size)).within(0, 1)


def auc(lower: np.ndarray, higher: np.ndarray) -> float:
    """Probability that one of `higher` $[m]$ exceeds one of `lower` $[n]$, ties counting half."""
    from scipy.stats import rankdata

    above = rankdata(np.concatenate([higher, lower]))[: higher.size].sum()
    above -= higher.size * (higher.size + 1) / 2
    return float(above / (higher.size * lower.size))


def auc_variance(auc: Any, first: int, second: int) -> Any:
    """Variance of AUCs between samples of these sizes (Hanley and McNeil, Radiology '82)."""
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = auc * (1 - auc) + (first - 1) * (q1 - auc**2) + (second - 1) * (q2 - auc**2)
    return np.maximum(0.0, spread / (first * second))

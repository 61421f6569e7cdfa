"""How far each feature column moved between two samples of nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from canet.diagnosis.graph import Matrix


@dataclass(frozen=True)
class Column:
    """How far one column moved.

    Args:
        name: Of the column, or its number.
        number: Of the column.
        effect: Largest distance of the two distribution functions (Kolmogorov-Smirnov), 0 to 1;
            of a column of zeros and ones it is the difference of the rates.
        difference: Of the means, new minus training, in pooled standard deviations.
        before, after: Means.
        p_value: Corrected for the number of columns (Benjamini-Hochberg).
    """

    name: str
    number: int
    effect: float
    difference: float
    before: float
    after: float
    p_value: float


def column_shifts(before: Matrix, after: Matrix, names: Sequence[str]) -> list[Column]:
    """Each column of features $[n, D]$ against that of other features $[m, D]$, in their order."""
    from scipy.stats import false_discovery_control

    means, deviations = zip(_moments(before), _moments(after), strict=True)
    pooled = np.sqrt((deviations[0] ** 2 + deviations[1] ** 2) / 2)
    change = means[1] - means[0]
    # A column that is constant in both, but another constant, moved by infinitely many deviations.
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.where(change == 0, 0.0, change / pooled)
    effects, p_values = np.zeros(len(names)), np.ones(len(names))
    first, second = (x.tocsc() if sp.issparse(x) else x for x in (before, after))
    for i in range(len(names)):
        effects[i], p_values[i] = kolmogorov_smirnov(_column(first, i), _column(second, i))
    corrected = false_discovery_control(p_values)
    return [
        Column(name, i, *(float(v[i]) for v in (effects, difference, *means, corrected)))
        for i, name in enumerate(names)
    ]


def kolmogorov_smirnov(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Largest distance of two empirical distribution functions, and its p-value.

    The p-value is the asymptotic one. For two values, such as zero and one, the distance is the
    difference of their rates, and the p-value that of two proportions.
    """
    from scipy.special import kolmogorov

    n, m = before.size, after.size
    low, high = min(before.min(), after.min()), max(before.max(), after.max())
    if low == high:
        return 0.0, 1.0
    if all(((v == low) | (v == high)).all() for v in (before, after)):
        rates = (before == high).mean(), (after == high).mean()
        joint = (n * rates[0] + m * rates[1]) / (n + m)
        z = (rates[1] - rates[0]) / math.sqrt(joint * (1 - joint) * (1 / n + 1 / m))
        return float(abs(rates[1] - rates[0])), math.erfc(abs(z) / math.sqrt(2))
    first, second = np.sort(before), np.sort(after)
    places = np.concatenate([first, second])
    distances = np.searchsorted(first, places, "right") / n
    distances -= np.searchsorted(second, places, "right") / m
    effect = float(np.abs(distances).max())
    return effect, float(kolmogorov(effect * math.sqrt(n * m / (n + m))))


def _column(x: Matrix, i: int) -> np.ndarray:
    return np.asarray(x[:, [i]].todense()).ravel() if sp.issparse(x) else x[:, i]


def _moments(x: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation $[D]$ of each column."""
    if not sp.issparse(x):
        return x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    x = x.astype(np.float64)
    mean = np.asarray(x.mean(axis=0)).ravel()
    square = np.asarray(x.multiply(x).mean(axis=0)).ravel()
    return mean, np.sqrt(np.maximum(square - mean**2, 0))

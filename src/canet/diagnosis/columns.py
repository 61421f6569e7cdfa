"""How far each feature column shifted between two samples of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from canet.data.graph_files.encoding import Encoding
from canet.diagnosis.graph import Matrix

CLEAR_EFFECT, CLEAR_P_VALUE = 0.1, 0.05
COLUMNS_AT_ONCE = 64  # of dense features that are made contiguous


@dataclass(frozen=True)
class Column:
    """How far one column shifted."""

    name: str  # of the column, or its number
    number: int  # of the column
    # Largest distance of the two distribution functions (Kolmogorov-Smirnov), 0 to 1; for a column
    # of zeros and ones it is the difference of the rates.
    effect: float
    difference: float  # of the means, new minus training, in pooled standard deviations
    # before, after: Means, in the units of the table that the graph was read from.
    before: float
    after: float
    p_value: float  # corrected for the number of columns (Benjamini-Hochberg)
    is_date: bool = False  # then the means are seconds since 1970

    @property
    def shifted(self) -> bool:
        """Whether the effect is 0.1 or more, and hardly chance."""
        return self.effect >= CLEAR_EFFECT and self.p_value <= CLEAR_P_VALUE


def column_shifts(before: Matrix, after: Matrix, names: Sequence[str]) -> list[Column]:
    """Each column of features $[n, D]$ against that of other features $[m, D]$, in their order."""
    from scipy.stats import false_discovery_control

    means, deviations = zip(moments(before), moments(after), strict=True)
    pooled = np.sqrt((deviations[0] ** 2 + deviations[1] ** 2) / 2)
    change = means[1] - means[0]
    # A column that is constant in both, but another constant, shifted by infinite deviations.
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.where(change == 0, 0.0, change / pooled)
    sizes = before.shape[0], after.shape[0]
    found = [
        _distance(first, second, sizes)
        for (_, first), (_, second) in zip(entries_of(before), entries_of(after), strict=True)
    ]
    effects, rates = np.array(found).T
    corrected = false_discovery_control(_p_values(effects, rates, sizes))
    rows = np.stack([effects, difference, *means, corrected], axis=1).tolist()
    return [Column(name, i, *rows[i]) for i, name in enumerate(names)]


def in_own_units(columns: Sequence[Column], encoding: Encoding) -> list[Column]:
    """Columns whose means are those of the table, and not of the features made of it."""
    made = [
        (column, encoding.columns[i]) for column, i in zip(columns, encoding.sources, strict=True)
    ]
    return [
        replace(
            column,
            before=of.mean + of.std * column.before,
            after=of.mean + of.std * column.after,
            is_date=of.kind == "date",
        )
        for column, of in made
    ]


def kolmogorov_smirnov(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Largest distance of two empirical distribution functions, and its p-value.

    The p-value is the asymptotic one. For two values, such as zero and one, the distance is the
    difference of their rates, and the p-value that of two proportions.
    """
    sizes = before.size, after.size
    effect, rate = _distance(before, after, sizes)
    return effect, float(_p_values(np.array([effect]), np.array([rate]), sizes)[0])


def _distance(before: np.ndarray, after: np.ndarray, sizes: tuple[int, int]) -> tuple[float, float]:
    """The distance of two samples of these sizes, whose other values are zero.

    Also the rate of the highest value where there are one or two; NaN where there are more.
    """
    zeros = sizes[0] - before.size, sizes[1] - after.size
    # Sorted samples are merged in linear time by a stable sort.
    zero = np.zeros(1 if any(zeros) else 0, before.dtype)
    values = np.concatenate([np.sort(before), np.sort(after), zero])
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.cumsum(order < before.size, dtype=np.int64)
    second = np.arange(1, order.size + 1) - first
    if zero.size:  # it stands for all of them, and was counted as of the second sample
        place = int(np.flatnonzero(order == order.size - 1)[0])
        first[place:] += zeros[0]
        second[place:] += zeros[1] - 1
    last = np.append(ordered[1:] != ordered[:-1], True)
    first, second = first[last], second[last]
    effect = float(np.abs(first / sizes[0] - second / sizes[1]).max())
    if first.size > 2:
        return effect, math.nan
    higher = sum(sizes) - int(first[0] + second[0])
    return effect, higher / sum(sizes) if first.size == 2 else 1.0


def _p_values(effects: np.ndarray, rates: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """p-value $[D]$ of each distance, with what `_distance` says about the values."""
    from scipy.stats import kstwobign, norm

    each = 1 / sizes[0] + 1 / sizes[1]
    p_values = kstwobign.sf(effects / math.sqrt(each))
    two = rates < 1
    deviation = np.sqrt(rates[two] * (1 - rates[two]) * each)
    p_values[two] = 2 * norm.sf(effects[two] / deviation)
    return np.where(rates == 1, 1.0, p_values)


def entries_of(x: Matrix) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and values of the entries of each column of features $[n, D]$ that are not zero."""
    if sp.issparse(x):
        x = x.tocsc()
        x.sum_duplicates()
        for i in range(x.shape[1]):
            entries = slice(*x.indptr[i : i + 2])
            yield x.indices[entries], x.data[entries]
        return
    for start in range(0, x.shape[1], COLUMNS_AT_ONCE):
        for column in np.ascontiguousarray(x[:, start : start + COLUMNS_AT_ONCE].T):
            rows = np.flatnonzero(column)
            yield rows, column[rows]


def moments(x: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation $[D]$ of each column."""
    if not sp.issparse(x):
        return x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    entries, rows = x.tocsc().astype(np.float64), x.shape[0]
    entries.sum_duplicates()
    mean, filled = np.asarray(entries.mean(axis=0)).ravel(), np.diff(entries.indptr)
    column = np.repeat(np.arange(x.shape[1]), filled)
    squares = np.bincount(column, (entries.data - mean[column]) ** 2, minlength=x.shape[1])
    return mean, np.sqrt((squares + (rows - filled) * mean**2) / rows)

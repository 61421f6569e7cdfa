"""Shift of each feature column between two samples of nodes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from canet.data.graph_files.encoding import Encoding
from canet.util.rendering import amount, percent
from canet.util.sparse import Matrix

CLEAR_EFFECT, CLEAR_P_VALUE = 0.1, 0.05
MAX_VALUE = 16  # characters of the name of a category
MAX_BARS = 12  # of the distribution of a column
COLUMNS_PER_COPY = 64  # dense columns that are copied at a time


@dataclass(frozen=True)
class ColumnShift:
    """The shift of one column."""

    name: str  # or the column index, if it has no name
    number: int  # column index
    # Kolmogorov-Smirnov distance, 0 to 1. For a column of zeros and ones, this is the difference of
    # the rates of ones.
    effect: float
    # before, after: Means in training and on the new graph, in the units of the input table.
    before: float
    after: float
    p_value: float  # Benjamini-Hochberg-corrected for the number of columns
    is_date: bool = False  # the means are seconds since 1970
    value: str = ""  # the category that ones mark, or `empty`; the means are its shares

    @property
    def means(self) -> tuple[str, str]:
        """The means in training and on the new graph as text: `signal 89 %` and `94 %`."""
        if self.value:
            value = self.value if len(self.value) <= MAX_VALUE else f"{self.value[:MAX_VALUE]}…"
            return f"{value} {percent(self.before)} %", f"{percent(self.after)} %"
        return amount(self.before, self.is_date), amount(self.after, self.is_date)

    @property
    def has_shifted(self) -> bool:
        """Whether the effect is at least 0.1 and significant at the 5 % level."""
        return self.effect >= CLEAR_EFFECT and self.p_value <= CLEAR_P_VALUE


def column_shifts(before: Matrix, after: Matrix, names: Sequence[str]) -> list[ColumnShift]:
    """Compare each column of two samples $[n, D]$ and $[m, D]$; returns one result per column."""
    from scipy.stats import false_discovery_control

    sizes = before.shape[0], after.shape[0]
    pairs = zip(nonzero_entries(before), nonzero_entries(after), strict=True)
    distances = [_distance(first, second, sizes) for (_, first), (_, second) in pairs]
    effects, rates = np.array(distances).T
    corrected = false_discovery_control(_p_values(effects, rates, sizes))
    means = [moments(part)[0] for part in (before, after)]
    rows = np.stack([effects, *means, corrected], axis=1).tolist()
    return [ColumnShift(name, i, *rows[i]) for i, name in enumerate(names)]


def in_table_units(columns: Sequence[ColumnShift], encoding: Encoding) -> list[ColumnShift]:
    """Convert the means of standardised columns back to the units of the input table."""
    return [
        replace(column, value=column.name.partition("=")[2])
        if scale is None
        else replace(
            column,
            before=scale.mean + scale.std * column.before,
            after=scale.mean + scale.std * column.after,
            is_date=scale.kind == "date",
        )
        for column, scale in zip(columns, encoding.scales, strict=True)
    ]


@dataclass(frozen=True)
class Bar:
    """One value or interval of a column, and the shares of nodes there."""

    low: float
    high: float  # equal to `low` for a single value
    before: float  # share of the training nodes
    after: float  # share of the nodes of the new graph


@dataclass(frozen=True)
class Distribution:
    """The distribution of one column in training and on the new graph, in table units."""

    name: str
    bars: list[Bar]
    is_date: bool = False


def distribution(
    column: ColumnShift, before: np.ndarray, after: np.ndarray, encoding: Encoding | None
) -> Distribution:
    """Count the values of a column $[n]$ and $[m]$ in intervals, or one by one if they are few.

    Values beyond the 1st and 99th percentile are counted in the first and last interval.
    """
    scale = None if encoding is None else encoding.scales[column.number]
    if scale is not None:
        before, after = (scale.mean + scale.std * part for part in (before, after))
    both = np.concatenate([before, after])
    values = np.unique(both)
    if values.size <= MAX_BARS:
        limits = list(zip(values, values, strict=True))
        counts = [(part[:, None] == values).sum(axis=0) for part in (before, after)]
    else:
        low, high = np.percentile(both, [1, 99])
        if low == high:
            low, high = values[0], values[-1]
        edges = np.linspace(low, high, MAX_BARS + 1)
        limits = list(pairwise(edges))
        counts = [np.histogram(part.clip(low, high), edges)[0] for part in (before, after)]
    shares = [count / count.sum() for count in counts]
    bars = [
        Bar(float(low), float(high), float(first), float(second))
        for (low, high), first, second in zip(limits, *shares, strict=True)
    ]
    return Distribution(column.name, bars, column.is_date)


def kolmogorov_smirnov(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance of two samples, and its asymptotic p-value.

    For two distinct values, such as zero and one, the distance is the difference of the rates, and
    the p-value is that of the test of two proportions.
    """
    sizes = before.size, after.size
    effect, rate = _distance(before, after, sizes)
    return effect, float(_p_values(np.array([effect]), np.array([rate]), sizes)[0])


def _distance(before: np.ndarray, after: np.ndarray, sizes: tuple[int, int]) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance of two samples, given their sizes and non-zero values.

    Also returns the pooled rate of the highest value; NaN if there are more than two values.
    """
    zeros = sizes[0] - before.size, sizes[1] - after.size
    values = np.unique(np.concatenate([before, after, np.zeros(int(any(zeros)), before.dtype)]))
    first, second = (
        np.searchsorted(np.sort(part), values, side="right") + np.where(values >= 0, count, 0)
        for part, count in zip((before, after), zeros, strict=True)
    )
    effect = float(np.abs(first / sizes[0] - second / sizes[1]).max())
    if first.size > 2:
        return effect, math.nan
    higher = sum(sizes) - int(first[0] + second[0])
    return effect, higher / sum(sizes) if first.size == 2 else 1.0


def _p_values(effects: np.ndarray, rates: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """p-values $[D]$ for the distances and rates that `_distance` returns."""
    from scipy.stats import kstwobign, norm

    inverse_size = 1 / sizes[0] + 1 / sizes[1]
    p_values = kstwobign.sf(effects / math.sqrt(inverse_size))
    two = rates < 1
    deviation = np.sqrt(rates[two] * (1 - rates[two]) * inverse_size)
    p_values[two] = 2 * norm.sf(effects[two] / deviation)
    return np.where(rates == 1, 1.0, p_values)


def nonzero_entries(x: Matrix) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows and values of the non-zero entries of each column of $[n, D]$."""
    if sp.issparse(x):
        x = x.tocsc()
        x.sum_duplicates()
        for i in range(x.shape[1]):
            entries = slice(*x.indptr[i : i + 2])
            yield x.indices[entries], x.data[entries]
        return
    for start in range(0, x.shape[1], COLUMNS_PER_COPY):
        for column in np.ascontiguousarray(x[:, start : start + COLUMNS_PER_COPY].T):
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

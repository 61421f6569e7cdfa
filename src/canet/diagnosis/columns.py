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
    effects, p_values = np.zeros(len(names)), np.ones(len(names))
    for i, pair in enumerate(zip(columns_of(before), columns_of(after), strict=True)):
        effects[i], p_values[i] = kolmogorov_smirnov(*pair)
    corrected = false_discovery_control(p_values)
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
    from scipy.stats import ks_2samp, kstwobign, norm

    both = np.concatenate([before, after])
    values = np.unique(both)
    if values.size == 1:
        return 0.0, 1.0
    each = 1 / before.size + 1 / after.size
    if values.size == 2:
        effect = float(abs((before == values[0]).mean() - (after == values[0]).mean()))
        rate = (both == values[1]).mean()
        return effect, float(2 * norm.sf(effect / math.sqrt(rate * (1 - rate) * each)))
    effect = float(ks_2samp(before, after, method="asymp").statistic)
    return effect, float(kstwobign.sf(effect / math.sqrt(each)))


def columns_of(x: Matrix) -> Iterator[np.ndarray]:
    """The columns $[n]$ of features $[n, D]$, one after the other."""
    if not sp.issparse(x):
        yield from x.T
        return
    x = x.tocsc()
    x.sum_duplicates()
    for i in range(x.shape[1]):
        entries, column = slice(*x.indptr[i : i + 2]), np.zeros(x.shape[0], x.dtype)
        column[x.indices[entries]] = x.data[entries]
        yield column


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

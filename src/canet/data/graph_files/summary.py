"""Summaries of the columns of a table, and checks whether they can be features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.preprocessing import StandardScaler

from canet.data.graph_files.tables import TIMESTAMP
from canet.data.graph_files.values import ProblemHandler, as_numbers, can_parse
from canet.errors import InputError, listed

KINDS = {
    pa.int64(): "number",
    pa.float64(): "number",
    pa.bool_(): "boolean",
    TIMESTAMP: "date",
}
MAX_CATEGORIES = 10_000
"""A text column with more distinct values is never a feature."""
FEW_CATEGORIES = 50
"""A text column with more distinct values, and more than half the number of nodes, is rejected,
because it looks like a name or an id.
"""
MAX_COPIED_CELLS = 2**24
"""Numbers that are copied at once, unless a single column has more."""


@dataclass(frozen=True)
class ColumnSummary:
    """Summary of one column.

    Range, mean, standard deviation and words are computed on the nodes outside the test set,
    without infinite numbers. The counts refer to all nodes. Dates are seconds since 1970.
    """

    name: str
    kind: str  # number, boolean, date, text or empty
    empty: int = 0
    infinite: int = 0
    low: float = np.nan
    high: float = np.nan
    mean: float = 0.0
    std: float = 1.0
    is_binary: bool = False  # all numbers are 0 or 1
    words: tuple[str, ...] = ()  # sorted distinct values of text
    varies: bool = False

    @property
    def is_numeric(self) -> bool:
        return self.kind in ("number", "boolean", "date")


def summarise(
    table: pa.Table, names: Sequence[str], is_non_test: np.ndarray
) -> dict[str, ColumnSummary]:
    """Summarise the columns `names`; `is_non_test` $[N]$ masks the nodes outside the test set."""
    summaries, numeric = {}, []
    for name in names:
        if table[name].null_count == table.num_rows:
            summaries[name] = ColumnSummary(name, "empty", table.num_rows)
        elif table[name].type == pa.string():
            summaries[name] = _summarise_text(name, table[name], is_non_test)
        else:
            numeric.append(name)
    for block in column_blocks(numeric, table.num_rows):
        summaries |= _summarise_numbers(table, block, is_non_test)
    return {name: summaries[name] for name in names}


def column_blocks(names: Sequence[str], rows: int) -> Iterator[Sequence[str]]:
    """Yield a few columns at a time, to limit the memory for a copy of their numbers."""
    step = max(1, MAX_COPIED_CELLS // max(rows, 1))
    return (names[start : start + step] for start in range(0, len(names), step))


def number_matrix(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Return the numbers of some columns, float64 $[N, n]$; NaN for empty cells."""
    values = np.empty((table.num_rows, len(names)), order="F")
    for i, name in enumerate(names):
        values[:, i] = as_numbers(table[name])
    return values


def _summarise_numbers(
    table: pa.Table, names: Sequence[str], is_non_test: np.ndarray
) -> dict[str, ColumnSummary]:
    values = number_matrix(table, names)
    empty, infinite = np.isnan(values).sum(axis=0), np.isinf(values).sum(axis=0)
    inside = values[is_non_test]
    del values  # free memory
    if infinite.any():
        inside[np.isinf(inside)] = np.nan
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler().fit(inside)
        std = np.sqrt(scaler.var_)
    low, high = np.fmin.reduce(inside), np.fmax.reduce(inside)
    is_binary = ((inside == 0) | (inside == 1) | np.isnan(inside)).all(axis=0)
    return {
        name: ColumnSummary(
            name,
            "empty" if empty[i] == len(is_non_test) else KINDS[table[name].type],
            int(empty[i]),
            int(infinite[i]),
            float(low[i]),
            float(high[i]),
            float(scaler.mean_[i]),
            float(std[i]),
            bool(is_binary[i]),
            varies=bool(low[i] < high[i] and std[i] != 0),
        )
        for i, name in enumerate(names)
    }


def _summarise_text(name: str, column: pa.ChunkedArray, is_non_test: np.ndarray) -> ColumnSummary:
    inside = column if is_non_test.all() else column.filter(pa.array(is_non_test))
    words = tuple(sorted(pc.unique(inside).drop_null().to_pylist()))
    varies = len(words) > (0 if inside.null_count else 1)
    return ColumnSummary(name, "text", column.null_count, words=words, varies=varies)


def check_learnable(
    summaries: dict[str, ColumnSummary],
    path: Path,
    table: pa.Table,
    num_non_test: int,
    report_problem: ProblemHandler,
) -> None:
    """Report columns that cannot be features; `num_non_test` nodes are outside the test set."""
    columns = list(summaries.values())
    for column in columns:
        name, count = column.name, len(column.words)
        if count > max(FEW_CATEGORIES, min(num_non_test / 2, MAX_CATEGORIES)):
            report_problem(
                f"column '{name}' of '{path}' contains text with {count:,} distinct values"
                f"{non_number_hint(table[name])}, which are too many for a categorical feature: "
                "correct its cells, remove the column, or pass it as id (--id)"
            )
        elif column.is_numeric and column.varies and not np.isfinite(column.std):
            report_problem(
                f"column '{name}' of '{path}' contains numbers up to {column.high:g}, which are "
                "too large to standardise: take logarithms, or remove the column"
            )
    check_complete((column for column in columns if column.is_numeric), path, report_problem)
    if not any(column.varies for column in columns):
        report_problem(
            f"'{path}' has no feature column with different values: add one, for example the "
            "degree of each node"
        )


def check_complete(
    columns: Iterable[ColumnSummary], path: Path, report_problem: ProblemHandler
) -> None:
    """Report numeric columns with empty or infinite cells."""
    chosen = list(columns)
    for word, counts in (
        ("empty", {c.name: c.empty for c in chosen if c.empty}),
        ("infinite", {c.name: c.infinite for c in chosen if c.infinite}),
    ):
        if counts:
            affected = [f"'{name}' ({count:,})" for name, count in counts.items()]
            report_problem(
                f"'{path}' has {word} cells in numeric columns: {listed(affected)}; fill them, for "
                "example with the mean of the column, or remove the columns"
            )


def check_present(
    required: Iterable[str], available: Iterable[str], path: Path, kind: str = "column"
) -> None:
    """Reject a file without a required column and suggest the most similar column."""
    names = list(available)
    known = set(names)
    missing = [name for name in required if name not in known]
    if not missing:
        return
    nearest = get_close_matches(missing[0], names, n=1)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
    raise InputError(
        f"'{path}' has no {kind} '{missing[0]}'{more}: {hint}its {kind}s are {listed(names)}"
    )


def non_number_hint(column: pa.ChunkedArray) -> str:
    """Name the first cell that is not a number, if there are numbers before it."""
    before = False
    for row, cell in enumerate(column.to_pylist(), 1):
        if cell is not None and not can_parse(cell):
            return f" ({cell[:40]!r} in row {row:,} is not a number)" if before else ""
        before = before or cell is not None
    return ""

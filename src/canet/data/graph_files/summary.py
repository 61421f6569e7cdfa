"""Summaries of the columns of a table, and checks whether they can be features."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from canet.data.graph_files.tables import NUMBERS, TIMESTAMP, without_empty_words
from canet.data.graph_files.values import ArrowColumn, ProblemHandler, as_numbers
from canet.errors import InputError, listed

KINDS = {pa.int64(): "number", pa.float64(): "number", pa.bool_(): "boolean", TIMESTAMP: "date"}
MAX_CATEGORIES = 10_000  # a text column with more distinct values is never a feature
FEW_CATEGORIES = 50
"""A text column with more distinct values, and more than half the number of nodes, is rejected,
because it looks like a name or an id.
"""
MIN_NUMBERS, MIN_WORDS = 0.8, 5
"""A text column with more distinct values, and a larger share of numbers, is reported."""
MAX_COPIED_CELLS = 2**24  # numbers that are copied at once, unless a single column has more


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
    nonzero: float = 1.0  # share of cells that are not 0
    fill: float = 0.0  # the number for empty cells
    is_binary: bool = False  # all numbers are 0 or 1
    words: tuple[str, ...] = ()  # sorted distinct values of text
    varies: bool = False
    marks_empty: bool = False  # some cells outside the test set are empty, and some are not


def summarise(
    table: pa.Table, names: Sequence[str], is_non_test: np.ndarray, fill: str = "mean"
) -> dict[str, ColumnSummary]:
    """Summarise columns on a mask $[N]$ of nodes; `fill` is the statistic for empty numbers."""
    summaries, numeric = {}, []
    for name in names:
        if table[name].null_count == table.num_rows:
            summaries[name] = ColumnSummary(name, "empty", table.num_rows)
        elif table[name].type == pa.string():
            summaries[name] = _summarise_text(name, table[name], is_non_test)
        else:
            numeric.append(name)
    for block in column_blocks(numeric, table.num_rows):
        summaries |= _summarise_numbers(table, block, is_non_test, fill)
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
    table: pa.Table, names: Sequence[str], is_non_test: np.ndarray, fill: str
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
    known = np.isfinite(inside).sum(axis=0)
    fills = scaler.mean_
    if fill != "mean" and empty.any():
        fills = SimpleImputer(strategy=fill, keep_empty_features=True).fit(inside).statistics_
    facts = {
        "empty": empty,
        "infinite": infinite,
        "low": low,
        "high": high,
        "mean": scaler.mean_,
        "std": std,
        "nonzero": np.count_nonzero(inside, axis=0) / len(inside),
        "fill": np.nan_to_num(fills),
        "is_binary": ((inside == 0) | (inside == 1) | np.isnan(inside)).all(axis=0),
        "varies": (low < high) & (std != 0),
        "marks_empty": (known > 0) & (known < len(inside)),
    }
    return {
        name: ColumnSummary(
            name,
            KINDS[table[name].type] if known[i] else "empty",
            **{fact: values[i].item() for fact, values in facts.items()},
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
    decimal: str,
    report_problem: ProblemHandler,
) -> list[str]:
    """Report columns that cannot be features, and return those with free text, to leave out."""
    columns, free_text = list(summaries.values()), []
    for column in columns:
        name, count = column.name, len(column.words)
        if count > max(FEW_CATEGORIES, min(num_non_test / 2, MAX_CATEGORIES)):
            if hint := number_hint(table[name], decimal):
                found, fix = hint
                report_problem(
                    f"column '{name}' of '{path}' contains text with {count:,} distinct values"
                    f"{found}, which are too many for categories: {fix}, or leave the column out "
                    f"(without=['{name}'] or --without {name})"
                )
            free_text.append(name)
        elif column.varies and not np.isfinite(column.std):
            report_problem(
                f"column '{name}' of '{path}' contains numbers up to {column.high:g}, which are "
                f"too large to standardise: take logarithms, or leave it out (--without {name})"
            )
    check_finite(columns, path, report_problem)
    if not any(c.varies or c.marks_empty for c in columns if c.name not in free_text):
        report_problem(
            f"'{path}' has no feature column with different values: add one, such as node degrees"
        )
    return free_text


def check_finite(
    columns: Iterable[ColumnSummary], path: Path, report_problem: ProblemHandler
) -> None:
    """Report columns with infinite numbers."""
    affected = [f"'{c.name}' ({c.infinite:,})" for c in columns if c.infinite]
    if affected:
        report_problem(
            f"'{path}' has infinite numbers in these columns: {listed(affected)}; replace them, or "
            "delete them, because empty cells are filled"
        )


def find_column(name: str, columns: Iterable[str]) -> str | None:
    """Return the column with this name, or the only one that differs just in capital letters."""
    names = list(columns)
    if name in names:
        return name
    similar = [column for column in names if column.lower() == name.lower()]
    return similar[0] if len(similar) == 1 else None


def check_present(
    required: Iterable[str],
    available: Iterable[str],
    path: Path,
    kind: str = "column",
    fix: str = "add it, or pass one of these names",
) -> None:
    """Reject a file without a required column, and suggest the most similar column and a fix."""
    names = list(available)
    known = set(names)
    missing = [name for name in required if name not in known]
    if not missing:
        return
    nearest = find_column(missing[0], names) or next(
        iter(get_close_matches(missing[0], names, n=1)), None
    )
    hint = f"did you mean '{nearest}'? " if nearest else ""
    quoted = listed(f"'{name}'" for name in missing)
    word = kind if len(missing) == 1 else f"{kind}s"
    raise InputError(
        f"'{path}' has no {word} {quoted}: {hint}its {kind}s are {listed(names)}; {fix}"
    )


def almost_numbers(summaries: dict[str, ColumnSummary], table: pa.Table, decimal: str) -> list[str]:
    """Return a message for each text column whose values are numbers, with few exceptions."""
    messages = []
    for column in summaries.values():
        words = without_empty_words(pa.array(column.words, pa.string())).drop_null()
        numbers = (_matches(words, ".") | _matches(words, ",")).sum()
        is_near = numbers >= min(len(words), MIN_NUMBERS * max(len(words), MIN_WORDS))
        is_near = is_near and column.kind == "text"
        if is_near and (hint := number_hint(table[column.name], decimal)):
            found, fix = hint
            messages.append(
                f"column '{column.name}' was read as text{found}: if it contains numbers, {fix}"
            )
    return messages


def number_hint(column: pa.ChunkedArray, decimal: str) -> tuple[str, str] | None:
    """Return what keeps a text column from being numbers, and how to fix it; None if it is text."""
    filled, other = without_empty_words(column), "," if decimal == "." else "."
    number, known = _matches(filled, decimal), filled.is_valid().to_numpy()
    wrong_mark = _matches(filled, other) & ~number
    is_mark = wrong_mark.any() and (number | wrong_mark).sum() >= MIN_NUMBERS * known.sum()
    row = int((wrong_mark if is_mark else known & ~number).argmax())
    cell = f"{str(column[row])[:40]!r} in row {row + 1:,}"
    if is_mark:
        fix = f"read it with decimal='{other}' (--decimal {other})"
        return f" ({cell} has the decimal mark '{other}')", fix
    fix = "correct these cells or empty them"
    return (f" ({cell} is not a number)", fix) if number[:row].any() else None


def _matches(words: ArrowColumn, decimal: str) -> np.ndarray:
    """Return which words $[n]$ are numbers with a decimal mark."""
    matches = pc.match_substring_regex(words, NUMBERS[decimal])
    return pc.fill_null(matches, False).to_numpy(zero_copy_only=False)

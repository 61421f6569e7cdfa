"""What the columns of a table contain, and whether they can become features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.preprocessing import StandardScaler

from canet.data.graph_files.tables import INSTANT
from canet.data.graph_files.values import Refuse, as_numbers, reads
from canet.errors import InputError, listed

KINDS = {
    pa.int64(): "number",
    pa.float64(): "number",
    pa.bool_(): "boolean",
    INSTANT: "date",
}
MAX_CATEGORIES = 10_000
"""A text column with more different values than this is never a feature."""
FEW_CATEGORIES = 50
"""A text column with more than this, and than half as many as nodes, is more like a name."""
CELLS = 2**24
"""Numbers that are copied at once, unless a single column has more."""


@dataclass(frozen=True)
class ColumnSummary:
    """What one column contains.

    Range, mean, deviation and words are those of the nodes outside the test set, without infinite
    numbers; the rest counts all nodes. A date is its seconds since 1970.
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
    words: tuple[str, ...] = ()  # in order
    varies: bool = False

    @property
    def is_numeric(self) -> bool:
        return self.kind in ("number", "boolean", "date")


def summarise(table: pa.Table, names: Sequence[str], kept: np.ndarray) -> dict[str, ColumnSummary]:
    """Look at the columns `names`; `kept` $[N]$ are the nodes outside the test set."""
    found, numeric = {}, []
    for name in names:
        if table[name].null_count == table.num_rows:
            found[name] = ColumnSummary(name, "empty", table.num_rows)
        elif table[name].type == pa.string():
            found[name] = _summarise_text(name, table[name], kept)
        else:
            numeric.append(name)
    for block in column_blocks(numeric, table.num_rows):
        found |= _summarise_numbers(table, block, kept)
    return {name: found[name] for name in names}


def column_blocks(names: Sequence[str], rows: int) -> Iterator[Sequence[str]]:
    """Some columns at a time, so that a copy of their numbers is small."""
    step = max(1, CELLS // max(rows, 1))
    return (names[start : start + step] for start in range(0, len(names), step))


def number_matrix(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """The numbers of some columns, float64 $[N, n]$; NaN: empty."""
    values = np.empty((table.num_rows, len(names)), order="F")
    for i, name in enumerate(names):
        values[:, i] = as_numbers(table[name])
    return values


def _summarise_numbers(
    table: pa.Table, names: Sequence[str], kept: np.ndarray
) -> dict[str, ColumnSummary]:
    values = number_matrix(table, names)
    empty, infinite = np.isnan(values).sum(axis=0), np.isinf(values).sum(axis=0)
    inside = values[kept]
    del values  # a copy less while the rest is computed
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
            "empty" if empty[i] == len(kept) else KINDS[table[name].type],
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


def _summarise_text(name: str, column: pa.ChunkedArray, kept: np.ndarray) -> ColumnSummary:
    inside = column if kept.all() else column.filter(pa.array(kept))
    words = tuple(sorted(pc.unique(inside).drop_null().to_pylist()))
    varies = len(words) > (0 if inside.null_count else 1)
    return ColumnSummary(name, "text", column.null_count, words=words, varies=varies)


def check_learnable(
    found: dict[str, ColumnSummary], path: Path, table: pa.Table, kept: int, refuse: Refuse
) -> None:
    """Refuse columns that cannot become features; `kept` nodes are outside the test set."""
    columns = list(found.values())
    for column in columns:
        name, count = column.name, len(column.words)
        if count > max(FEW_CATEGORIES, min(kept / 2, MAX_CATEGORIES)):
            refuse(
                f"'{path}' has text with {count:,} different values in column '{name}'"
                f"{stray_hint(table[name])}: correct it, remove it, or name it as id"
            )
        elif column.is_numeric and column.varies and not np.isfinite(column.std):
            refuse(
                f"'{path}' has numbers up to {column.high:g} in column '{name}', too large to "
                "standardise: take logarithms, or remove the column"
            )
    check_complete((column for column in columns if column.is_numeric), path, refuse)
    if not any(column.varies for column in columns):
        refuse(
            f"'{path}' has no feature that differs between nodes: add one, for instance each "
            "node's degree"
        )


def check_complete(columns: Iterable[ColumnSummary], path: Path, refuse: Refuse) -> None:
    """Refuse columns of numbers with empty or infinite cells: which, and how many."""
    chosen = list(columns)
    for word, counts in (
        ("empty", {c.name: c.empty for c in chosen if c.empty}),
        ("infinite", {c.name: c.infinite for c in chosen if c.infinite}),
    ):
        if counts:
            places = [f"'{name}' ({count:,})" for name, count in counts.items()]
            refuse(
                f"'{path}' has {word} cells in columns of numbers: {listed(places)}; fill them, "
                "for instance with the column's mean, or remove the columns"
            )


def check_present(
    wanted: Iterable[str], given: Iterable[str], path: Path, kind: str = "column"
) -> None:
    """Refuse a file that lacks a wanted column: which, and the nearest that is there."""
    names = list(given)
    known = set(names)
    missing = [name for name in wanted if name not in known]
    if not missing:
        return
    nearest = get_close_matches(missing[0], names, n=1)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
    raise InputError(f"'{path}' has no {kind} '{missing[0]}'{more}: {hint}it has {listed(names)}")


def stray_hint(column: pa.ChunkedArray) -> str:
    """The first cell that is not a number, if numbers come before it."""
    before = False
    for row, cell in enumerate(column.to_pylist(), 1):
        if cell is not None and not reads(cell):
            return f" ({cell[:40]!r} in row {row:,} is not a number)" if before else ""
        before = before or cell is not None
    return ""

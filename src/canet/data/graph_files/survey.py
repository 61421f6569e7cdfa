"""What the columns of a table hold: kinds, empty cells, means and spreads, found in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from canet.data.graph_files.cells import as_booleans, as_numbers, as_seconds, as_text, is_empty
from canet.data.graph_files.chunks import Chunk, Table

MOST_CATEGORIES = 10_000
"""A text column with more different values than this is never a feature."""
FEW_CATEGORIES = 50
"""A text column with more than this, and than half as many as nodes, is more like a name."""
READERS = {"number": as_numbers, "boolean": as_booleans, "date": as_seconds}
"""What text may turn out to be, in the order of trying."""


@dataclass
class Moments:
    """Count, mean, variance and range of numbers that come in parts."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    minimum: float = np.inf
    maximum: float = -np.inf
    binary: bool = True

    def add(self, values: np.ndarray) -> None:
        """Merge the finite numbers $[n]$ (Chan, Golub & LeVeque, 1983)."""
        if not values.size:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean, count = float(values.mean()), values.size
            step, total = mean - self.mean, self.count + count
            self.squares += float(np.square(values - mean).sum())
            self.squares += float(np.square(np.float64(step))) * self.count * count / total
        self.mean += step * count / total
        self.count = total
        self.minimum = min(self.minimum, float(values.min()))
        self.maximum = max(self.maximum, float(values.max()))
        self.binary = self.binary and bool(((values == 0) | (values == 1)).all())

    @property
    def std(self) -> float:
        return float(np.sqrt(self.squares / max(self.count, 1)))


@dataclass
class ColumnSurvey:
    """What one column holds.

    Statistics and categories are those of the nodes outside the test set; the rest is of all.

    Args:
        name: Of the column.
        typed: Whether its file says that text is text, not numbers or dates.
        kinds: What its cells can still be, of `READERS`; none: text.
        cells, empty, infinite: How many there are.
        kept_empty: How many empty ones there are outside the test set.
        moments: Of its numbers; of dates, the seconds since 1970.
        words: Its different texts; None if there are more than `MOST_CATEGORIES`.
        stray: The first cell that is no number after others that are, and its row from 1 on.
        unreadable: What it holds where that is neither numbers nor text.
    """

    name: str
    typed: bool
    kinds: set[str] = field(default_factory=lambda: set(READERS))
    cells: int = 0
    empty: int = 0
    infinite: int = 0
    kept_empty: int = 0
    moments: Moments = field(default_factory=Moments)
    words: set[str] | None = field(default_factory=set)
    stray: tuple[str, int] | None = None
    unreadable: str = ""

    @property
    def kind(self) -> str:
        """`number`, `boolean`, `date`, `text`, `empty`, or what it holds instead."""
        if self.unreadable:
            return self.unreadable
        if self.empty == self.cells:
            return "empty"
        return min(self.kinds, default="text")

    @property
    def num_categories(self) -> int:
        return MOST_CATEGORIES + 1 if self.words is None else len(self.words)

    @property
    def varies(self) -> bool:
        """Whether nodes outside the test set differ in it."""
        if self.kind == "text":
            return self.num_categories > (0 if self.kept_empty else 1)
        return self.moments.minimum < self.moments.maximum and self.moments.std != 0

    def add(self, cells: np.ndarray, kept: np.ndarray) -> None:
        """Take in the next rows; `kept` $[n]$ are those outside the test set."""
        empty = is_empty(cells)
        values = self._read(cells, empty)
        if values is not None:
            empty = np.isnan(values)
            self.infinite += int(np.isinf(values).sum())
            self.moments.add(values[kept & np.isfinite(values)])
        if cells.dtype == object and self.words is not None:
            self.words.update(cells[kept & ~is_empty(cells)].tolist())
            if len(self.words) > MOST_CATEGORIES:
                self.words = None
        self.cells += len(cells)
        self.empty += int(empty.sum())
        self.kept_empty += int((empty & kept).sum())

    def _read(self, cells: np.ndarray, empty: np.ndarray) -> np.ndarray | None:
        """Cells as what all were so far; None for text and where all are empty."""
        if empty.all():
            return None
        if self.typed and cells.dtype == object:
            self.kinds &= {"boolean"}
        for kind in [kind for kind in READERS if kind in self.kinds]:
            values = READERS[kind](cells)
            if values is not None:
                self.kinds = {kind}
                return values
            if kind == "number":
                self._note_stray(cells, empty)
        self.kinds = set()
        return None

    def _note_stray(self, cells: np.ndarray, empty: np.ndarray) -> None:
        """Keep the first cell that is no number, which among numbers may be a slip."""
        filled = np.flatnonzero(~empty).tolist()
        row = next(row for row in filled if as_numbers(cells[row : row + 1]) is None)
        if self.moments.count or row != filled[0]:
            self.stray = str(cells[row]), self.cells + row + 1


@dataclass
class Survey:
    """What a table holds.

    Args:
        columns: By name.
        whole: Columns that were kept as they are.
        rows: How many there are.
        kept: How many of them are outside the test set.
    """

    columns: dict[str, ColumnSurvey]
    whole: Chunk
    rows: int
    kept: int


def survey(table: Table, names: Sequence[str], whole: Sequence[str], split: str | None) -> Survey:
    """Look at the columns `names` of a table and keep the columns `whole`.

    Nodes whose column `split` says `test` do not count in statistics, unless all do.
    """
    surveys = {name: _begin(table, name) for name in names}
    read = [name for name in dict.fromkeys([*names, *whole]) if name not in table.unreadable]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in whole}
    rows = outside = 0
    for chunk in table.chunks(read):
        size = len(chunk[read[0]])
        kept = ~is_test(chunk[split]) if split else np.ones(size, dtype=bool)
        for name, column in surveys.items():
            if name in chunk:
                column.add(chunk[name], kept)
        for name, cells in parts.items():
            cells.append(_share(chunk[name]))
        rows, outside = rows + size, outside + int(kept.sum())
    if split and rows and not outside:
        return survey(table, names, whole, None)
    joined = {name: _join(cells) for name, cells in parts.items()}
    return Survey(surveys, joined, rows, outside)


def is_test(cells: np.ndarray) -> np.ndarray:
    """Where $[n]$ a split column says `test`."""
    if cells.dtype != object:
        return np.zeros(len(cells), dtype=bool)
    says = {word: word.strip().lower() == "test" for word in set(cells.tolist())}
    return np.array([says[cell] for cell in cells.tolist()], dtype=bool)


def _begin(table: Table, name: str) -> ColumnSurvey:
    return ColumnSurvey(name, table.typed, unreadable=table.unreadable.get(name, ""))


def _share(cells: np.ndarray) -> np.ndarray:
    """The same cells, where equal strings are one object: a column of few words is small."""
    if cells.dtype != object:
        return cells
    words: dict[str, str] = {}
    return np.array([words.setdefault(cell, cell) for cell in cells.tolist()], dtype=object)


def _join(parts: list[np.ndarray]) -> np.ndarray:
    """One column of its parts; booleans come as text from parts that have empty cells."""
    if any(part.dtype == object for part in parts):
        parts = [as_text(part) for part in parts]
    return np.concatenate(parts) if parts else np.empty(0, dtype=object)

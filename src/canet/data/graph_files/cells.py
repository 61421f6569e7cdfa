"""What the cells of a column mean: numbers, booleans, dates, classes, ids or words.

Cells come as `canet.data.graph_files.chunks` gives them. The answer is None where they mean
something else.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

TRUTH = {"true": 1.0, "false": 0.0}
MISSING_CLASS = -1


def is_empty(cells: np.ndarray) -> np.ndarray:
    """Where $[n]$ a cell has no content."""
    if cells.dtype == object:
        return np.asarray(cells == "", dtype=bool)
    if cells.dtype.kind == "f":
        return np.isnan(cells)
    return np.isnat(cells) if cells.dtype.kind == "M" else np.zeros(len(cells), dtype=bool)


def as_numbers(cells: np.ndarray) -> np.ndarray | None:
    """Numbers, float64 $[n]$; NaN where a cell is empty."""
    if cells.dtype.kind in "iuf":
        return cells.astype(np.float64)
    if cells.dtype != object:
        return None
    try:
        return np.where(is_empty(cells), "nan", cells).astype(np.float64)
    except ValueError:
        return None


def as_booleans(cells: np.ndarray) -> np.ndarray | None:
    """1 for true and 0 for false, float64 $[n]$; NaN where a cell is empty."""
    if cells.dtype == bool:
        return cells.astype(np.float64)
    if cells.dtype != object:
        return None
    values = {word: TRUTH.get(word.lower()) for word in set(cells.tolist())}
    values.pop("", None)
    if None in values.values():
        return None
    return np.array([values.get(cell, np.nan) for cell in cells], dtype=np.float64)


def as_seconds(cells: np.ndarray) -> np.ndarray | None:
    """Seconds since 1970 of ISO dates and times, float64 $[n]$; NaN where a cell is empty.

    Without a time zone it is UTC.
    """
    if cells.dtype.kind == "M":
        seconds = cells.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(cells), np.nan, seconds)
    if cells.dtype != object:
        return None
    try:
        return np.array([_seconds(cell) if cell else np.nan for cell in cells], dtype=np.float64)
    except (ValueError, OverflowError):
        return None


def as_integers(cells: np.ndarray) -> np.ndarray | None:
    """Whole numbers, int64 $[n]$, where every cell is one, also if it is written as 7.0."""
    if cells.dtype.kind in "iu":
        return cells
    if cells.dtype == object:
        try:
            return cells.astype(np.int64)
        except (ValueError, OverflowError):
            pass
    numbers = as_numbers(cells)
    if numbers is None or not _whole(numbers).all():
        return None
    return numbers.astype(np.int64)


def as_text(cells: np.ndarray) -> np.ndarray:
    """Strings as objects $[n]$; "" where a cell is empty."""
    if cells.dtype == object:
        return cells
    texts = np.array([str(cell) for cell in cells.tolist()], dtype=object)
    texts[is_empty(cells)] = ""
    return texts


def as_ids(cells: np.ndarray, typed: bool) -> np.ndarray:
    """Integers or strings $[n]$. Text is integers where it is written so: 7 or 7.0, not 007."""
    if typed and cells.dtype == object:
        return cells
    integers = as_integers(cells)
    if integers is None:
        return as_text(cells)
    if cells.dtype == object:
        plain = zip(map(str, integers.tolist()), cells.tolist(), strict=True)
        if not all(cell in (integer, f"{integer}.0") for integer, cell in plain):
            return cells
    return integers


def as_classes(cells: np.ndarray) -> np.ndarray:
    """Classes $[n]$: int64 with -1, or strings with None, where a cell is empty.

    Whole numbers are integers, however they are written, but 007 is text; other numbers stay what
    they are, float64.
    """
    if cells.dtype == object:
        plain = {word: _plain_number(word) for word in set(cells.tolist())}
        if None in plain.values():
            return np.where(is_empty(cells), None, cells)  # type: ignore[call-overload]
        cells = np.array([plain[cell] for cell in cells], dtype=np.float64)
    if cells.dtype.kind in "bM":
        return as_classes(as_text(cells))
    if cells.dtype.kind == "f":
        empty = np.isnan(cells)
        if not (empty | _whole(cells)).all():
            return cells
        return np.where(empty, MISSING_CLASS, cells).astype(np.int64)
    return cells.astype(np.int64)


def _seconds(cell: str) -> float:
    moment = datetime.fromisoformat(cell)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _whole(numbers: np.ndarray) -> np.ndarray:
    """Where numbers are whole and float64 tells them from their neighbours."""
    return np.isfinite(numbers) & (numbers == np.round(numbers)) & (np.abs(numbers) < 2**53)


def _plain_number(word: str) -> float | None:
    """The number that Python writes as `word`, NaN for no word."""
    try:
        number = float(word) if word else np.nan
    except ValueError:
        return None
    plain = not word or word in (repr(number), str(int(number)) if _whole(np.array(number)) else "")
    return number if plain else None

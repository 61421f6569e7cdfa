"""The cells of a column as numbers, classes, ids, times or the sets of a split."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from canet.data.graph_data import GraphData
from canet.data.graph_files.tables import INSTANT
from canet.errors import InputError

Refuse = Callable[[str], object]
"""What to do with a line about a problem: raise it as an error, or collect it."""
Column = Any  # pa.ChunkedArray | pa.Array; pyarrow has no types
SPLITS = {"train": "train", "valid": "val", "val": "val", "validation": "val", "test": "test"}
"""What a split column may contain → whose mask it is; an empty cell is in no set."""
MISSING_CLASS = -1
INTEGER = r"^(0|-?[1-9][0-9]*)(\.0)?$"


def raise_error(problem: str) -> NoReturn:
    raise InputError(problem)


def as_numbers(column: Column) -> np.ndarray:
    """Numbers, 0 and 1 of booleans, or seconds since 1970, float64 $[n]$; NaN: empty."""
    if column.type == INSTANT:
        return as_numbers(column.cast(pa.int64())) / 1e6
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def as_text(column: Column) -> Column:
    """A column of strings."""
    if column.type == pa.bool_():
        return pc.if_else(column, "True", "False")
    return column.cast(pa.string())


def as_ids(column: Column, is_csv: bool) -> pa.Array:
    """Ids $[n]$ as int64 or strings; text of a CSV file is integers if written as 7 or 7.0."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        if column.type == pa.float64():
            return column.cast(pa.int64())
        if is_csv and pc.all(pc.match_substring_regex(column, INTEGER)).as_py():
            return _without_point(column).cast(pa.int64())
    except pa.ArrowInvalid:
        pass  # not whole, or too large
    return column if column.type == pa.int64() else as_text(column)


def rows_of(cells: Column, ids: pa.Array) -> np.ndarray:
    """The row $[n]$ of each id; -1 where no node has it."""
    if ids.type == pa.string():
        cells = as_text(cells)
    elif cells.type != pa.int64():
        try:
            cells = cells.cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            cells, ids = _without_point(as_text(cells)), as_text(ids)
    rows = pc.index_in(cells, value_set=ids, skip_nulls=True)
    return pc.fill_null(rows, -1).to_numpy()


def as_classes(column: Column) -> np.ndarray:
    """Classes $[n]$: int64 with -1, or strings with None, where a cell is empty.

    Whole numbers are integers, also if written as 1.0, but 01 is text. Other numbers stay float64.
    """
    if column.type == pa.int64() and not column.null_count:
        return column.to_numpy()
    if column.type in (pa.int64(), pa.float64(), pa.null()):
        return _whole_classes(as_numbers(column))
    words, codes = dictionary(as_text(column))
    numbers = [_plain_number(word) for word in words]
    if None in numbers:
        return np.array([*words, None], dtype=object)[codes]
    return _whole_classes(np.array([*numbers, np.nan], dtype=np.float64)[codes])


def dictionary(column: Column) -> tuple[list[str], np.ndarray]:
    """The different words of a column, and the number $[n]$ of each cell's word; -1: empty."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), pc.fill_null(encoded.indices, -1).to_numpy()


def split_words(column: Column) -> np.ndarray:
    """The set of each node $[n]$: train, val or test; another word as it is; "" if empty."""
    words, codes = dictionary(as_text(column))
    sets = [SPLITS.get(word.strip().lower(), word.strip()) for word in words]
    return np.array([*sets, ""], dtype=object)[codes]


def add_split(graph: GraphData, column: Column, name: str, path: Path, refuse: Refuse) -> None:
    """Add the masks $[n]$ of a split column; a word that is not a set is refused."""
    words = split_words(column)
    for word in set(words.tolist()) - {*SPLITS.values(), ""}:
        row = int(np.argmax(words == word)) + 1
        refuse(
            f"'{path}' has {word[:40]!r} in column '{name}' (row {row:,}): a split is train, valid "
            "or test, or empty; rename the column if it is a feature"
        )
    for word in ("train", "val", "test"):
        graph[f"{word}_mask"] = torch.from_numpy((words == word).astype(bool))


def add_time(graph: GraphData, column: Column, name: str, path: Path, refuse: Refuse) -> bool:
    """Add times $[n]$, NaN: empty; whether they were dates, which become seconds since 1970."""
    if column.type == pa.bool_():
        column = as_text(column)
    for kind in (pa.float64(), INSTANT, pa.timestamp("us", "UTC")):
        try:
            times = column.cast(kind, safe=False) if column.type == pa.string() else column
        except pa.ArrowInvalid:
            continue
        is_date = pa.types.is_timestamp(times.type)
        graph.time = as_numbers(times.cast(INSTANT) if is_date else times)
        return is_date
    cells = [(row, cell) for row, cell in enumerate(column.to_pylist(), 1) if cell is not None]
    kind = float if reads(cells[0][1]) else datetime.fromisoformat
    row, cell = next(((row, cell) for row, cell in cells if not reads(cell, kind)), cells[0])
    refuse(
        f"'{path}' has {cell[:40]!r} in column '{name}' (row {row:,}): times are all numbers, or "
        "all ISO dates such as 2024-01-31"
    )
    return False


def reads(cell: str, kind: Callable[[str], object] = float) -> bool:
    """Whether a cell is a number, or something else that Python reads from text."""
    try:
        kind(cell)
    except ValueError:
        return False
    return True


def _without_point(text: Column) -> Column:
    return pc.replace_substring_regex(text, r"\.0$", "")


def _plain_number(word: str) -> float | None:
    """The number that Python writes as `word`."""
    if not reads(word):
        return None
    number = float(word)
    whole = f"{number:.0f}" if abs(number) < 2**53 else ""
    return number if word in (repr(number), whole) else None


def _whole_classes(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers that float64 can distinguish as integers; others as they are."""
    empty = np.isnan(numbers)
    whole = (numbers == np.round(numbers)) & (np.abs(numbers) < 2**53)
    if not (empty | whole).all():
        return numbers
    return np.where(empty, MISSING_CLASS, numbers).astype(np.int64)

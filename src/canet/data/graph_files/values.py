"""Convert the cells of a column to numbers, classes, ids, times or splits."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from canet.data.graph_files.tables import TIMESTAMP
from canet.data.raw_graph import RawGraph
from canet.errors import InputError

ProblemHandler = Callable[[str], object]
"""Function that raises the message of a problem as an error, or collects it."""
ArrowColumn = Any  # pa.ChunkedArray | pa.Array; pyarrow has no types
SPLITS = {"train": "train", "valid": "val", "val": "val", "validation": "val", "test": "test"}
"""Cell of a split column → prefix of the mask; nodes with an empty cell are in no split."""
MISSING_CLASS = -1
INTEGER = r"^(0|-?[1-9][0-9]*)(\.0)?$"


def raise_error(problem: str) -> NoReturn:
    raise InputError(problem)


def as_numbers(column: ArrowColumn) -> np.ndarray:
    """Return numbers, booleans (0 and 1) or dates (seconds) as float64 $[n]$; NaN if empty."""
    if column.type == TIMESTAMP:
        return as_numbers(column.cast(pa.int64())) / 1e6
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def as_text(column: ArrowColumn) -> ArrowColumn:
    if column.type == pa.bool_():
        return pc.if_else(column, "True", "False")
    return column.cast(pa.string())


def as_ids(column: ArrowColumn, is_csv: bool) -> pa.Array:
    """Return ids $[n]$ as int64 or strings; text of a CSV file such as 7 or 7.0 is an integer."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        if column.type == pa.float64():
            return column.cast(pa.int64())
        if is_csv and pc.all(pc.match_substring_regex(column, INTEGER)).as_py():
            return _without_decimal_point(column).cast(pa.int64())
    except pa.ArrowInvalid:
        pass  # not integers, or too large
    return column if column.type == pa.int64() else as_text(column)


def rows_of_ids(cells: ArrowColumn, ids: pa.Array) -> np.ndarray:
    """Return the row $[n]$ of the node with each id; -1 if there is no such node."""
    if ids.type == pa.string():
        cells = as_text(cells)
    elif cells.type != pa.int64():
        try:
            cells = cells.cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            cells, ids = _without_decimal_point(as_text(cells)), as_text(ids)
    rows = pc.index_in(cells, value_set=ids, skip_nulls=True)
    return pc.fill_null(rows, -1).to_numpy()


def as_classes(column: ArrowColumn) -> np.ndarray:
    """Return classes $[n]$: int64 (-1 for empty cells), or strings or booleans (None for these).

    Integers may be written as 1 or 1.0, but 01 is text. Booleans may be written as true or True.
    Other numbers stay float64.
    """
    if column.type == pa.int64() and not column.null_count:
        return column.to_numpy()
    if column.type == pa.bool_():
        return column.to_numpy(zero_copy_only=False)
    if column.type in (pa.int64(), pa.float64(), pa.null()):
        return _whole_classes(as_numbers(column))
    words, codes = dictionary(as_text(column))
    if {word.lower() for word in words} == {"true", "false"}:
        return np.array([*(word.lower() == "true" for word in words), None], dtype=object)[codes]
    numbers = [_canonical_number(word) for word in words]
    if None in numbers:
        return np.array([*words, None], dtype=object)[codes]
    return _whole_classes(np.array([*numbers, np.nan], dtype=np.float64)[codes])


def dictionary(column: ArrowColumn) -> tuple[list[str], np.ndarray]:
    """Return the distinct words of a column and the index $[n]$ of each cell; -1 if empty."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), pc.fill_null(encoded.indices, -1).to_numpy()


def split_words(column: ArrowColumn) -> np.ndarray:
    """Return the split of each node $[n]$: train, val, test or ""; other words are not changed."""
    words, codes = dictionary(as_text(column))
    sets = [SPLITS.get(word.strip().lower(), word.strip()) for word in words]
    return np.array([*sets, ""], dtype=object)[codes]


def add_split(
    graph: RawGraph, column: ArrowColumn, name: str, path: Path, report_problem: ProblemHandler
) -> None:
    """Add the masks $[n]$ of a split column; report words that are not a split."""
    words = split_words(column)
    for word in set(words.tolist()) - {*SPLITS.values(), ""}:
        row = int(np.argmax(words == word)) + 1
        report_problem(
            f"column '{name}' of '{path}' contains {word[:40]!r} (row {row:,}), but a split must "
            "be train, valid, test or empty: correct it, or rename the column if it is a feature"
        )
    for word in ("train", "val", "test"):
        graph[f"{word}_mask"] = torch.from_numpy((words == word).astype(bool))


def add_time(
    graph: RawGraph, column: ArrowColumn, name: str, path: Path, report_problem: ProblemHandler
) -> bool:
    """Add times $[n]$, dates as seconds since 1970, and return whether they were dates."""
    if column.type == pa.bool_():
        column = as_text(column)
    for kind in (pa.float64(), TIMESTAMP, pa.timestamp("us", "UTC")):
        try:
            times = column.cast(kind, safe=False) if column.type == pa.string() else column
        except pa.ArrowInvalid:
            continue
        is_date = pa.types.is_timestamp(times.type)
        graph.time = as_numbers(times.cast(TIMESTAMP) if is_date else times)
        return is_date
    cells = [(row, cell) for row, cell in enumerate(column.to_pylist(), 1) if cell is not None]
    kind = float if can_parse(cells[0][1]) else datetime.fromisoformat
    row, cell = next(((row, cell) for row, cell in cells if not can_parse(cell, kind)), cells[0])
    report_problem(
        f"column '{name}' of '{path}' contains {cell[:40]!r} (row {row:,}), but times must be "
        "all numbers or all ISO dates, such as 2024-01-31"
    )
    return False


def can_parse(cell: str, kind: Callable[[str], object] = float) -> bool:
    """Whether `kind` can parse a cell; by default, whether the cell is a number."""
    try:
        kind(cell)
    except ValueError:
        return False
    return True


def _without_decimal_point(text: ArrowColumn) -> ArrowColumn:
    return pc.replace_substring_regex(text, r"\.0$", "")


def _canonical_number(word: str) -> float | None:
    """Return the number that Python prints as `word`; None if there is no such number."""
    if not can_parse(word):
        return None
    number = float(word)
    whole = f"{number:.0f}" if abs(number) < 2**53 else ""
    return number if word in (repr(number), whole) else None


def _whole_classes(numbers: np.ndarray) -> np.ndarray:
    """Convert integers that float64 represents exactly to int64; return other numbers unchanged."""
    empty = np.isnan(numbers)
    whole = (numbers == np.round(numbers)) & (np.abs(numbers) < 2**53)
    if not (empty | whole).all():
        return numbers
    return np.where(empty, MISSING_CLASS, numbers).astype(np.int64)

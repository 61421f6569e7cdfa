"""Tables in CSV or Parquet files, read as chunks of numpy columns.

A chunk maps the name of each column to its cells $[n]$: int64, float64 (NaN: empty), bool,
datetime64 (NaT: empty) or strings as objects ("": empty). A CSV file has strings only.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from canet.errors import InputError, first_line

Chunk = dict[str, np.ndarray]
LONGEST_NAME = 200
CELLS = 2**20
"""Cells that a chunk has at most, unless a single row has more."""
MOST_ROWS = 2**16
MOST_CSV_ROWS = 2**12
"""Of Python's strings; a chunk should stay in the processor's cache."""


class Table(Protocol):
    """A file of named columns.

    Args:
        path: Where it lies.
        columns: Names in the order of the file.
        typed: Whether the file says what a column holds; text that looks like a number is text.
        unreadable: Names of columns that no chunk can have → what they hold.
    """

    path: Path
    columns: list[str]
    typed: bool
    unreadable: dict[str, str]

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        """The columns `names`, some rows at a time."""
        ...


def find_table(folder: Path, name: str) -> Table:
    """The table `name`.csv or `name`.parquet of a folder."""
    found = [
        path for suffix in ("csv", "parquet") if (path := folder / f"{name}.{suffix}").exists()
    ]
    if not found:
        raise InputError(f"'{folder}' has neither {name}.csv nor {name}.parquet: add one of them")
    if len(found) > 1:
        raise InputError(f"'{folder}' has both {name}.csv and {name}.parquet: keep one of them")
    (path,) = found
    try:
        table: Table = CsvTable(path) if path.suffix == ".csv" else ParquetTable(path)
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {first_line(error)}") from error
    _check_header(table)
    return table


class CsvTable:
    """A CSV file: commas, a header, UTF-8. Every cell is text."""

    typed = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unreadable: dict[str, str] = {}
        with self._reading() as reader:
            self.columns = [name.strip() for name in next(filter(None, reader), [])]

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        places = {name: self.columns.index(name) for name in names}
        width = len(self.columns)
        size = min(MOST_CSV_ROWS, _rows_per_chunk(width))
        with self._reading() as reader:
            next(filter(None, reader), None)
            while rows := list(islice(reader, size)):
                if set(map(len, rows)) != {width}:
                    rows = self._filled(rows)
                if rows:
                    yield _transpose(rows, places)

    def _filled(self, rows: list[list[str]]) -> list[list[str]]:
        """The rows that are not blank, or an error where one has too few cells, or too many."""
        filled = [row for row in rows if row]
        width = len(self.columns)
        if any(len(row) != width for row in filled):
            with self._reading() as reader:
                row = next(row for row in reader if row and len(row) != width)
                raise InputError(
                    f"'{self.path}' has {len(row)} cells in line {reader.line_num:,} and {width} "
                    "in its header: quote cells that hold commas"
                )
        return filled

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """A reader of rows whose complaints are ours."""
        with self.path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True, strict=True)
            try:
                yield reader
            except UnicodeDecodeError as error:
                raise InputError(
                    f"'{self.path}' is not UTF-8 ({error.reason} at byte {error.start}): save it "
                    "as UTF-8"
                ) from error
            except csv.Error as error:
                raise InputError(
                    f"'{self.path}' is no CSV file ({error} in line {reader.line_num:,}): write it "
                    "again"
                ) from error


class ParquetTable:
    """A Parquet file, read by pyarrow a batch of rows at a time."""

    typed = True

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise InputError(
                f"'{path}' needs pyarrow: pip install pyarrow (in a checkout: pip install "
                "'.[parquet]'), or bring CSV"
            ) from error
        self.path = path
        try:
            self._file = pq.ParquetFile(path)
            schema = self._file.schema_arrow
        except (pa.ArrowException, ValueError) as error:
            raise self._damaged(error) from error
        self._errors = (pa.ArrowException, ValueError, OSError)
        self.columns = list(schema.names)
        self.unreadable = {f.name: str(f.type) for f in schema if not _is_readable(f.type)}

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        size = _rows_per_chunk(len(names))
        try:
            for batch in self._file.iter_batches(size, columns=list(names)):
                yield {name: self._cells(name, batch.column(name)) for name in names}
        except self._errors as error:
            if isinstance(error, InputError):
                raise
            raise self._damaged(error) from error

    def _cells(self, name: str, column: Any) -> np.ndarray:
        try:
            return _cells(column)
        except OverflowError as error:
            raise InputError(
                f"'{self.path}' has integers of 2^63 or more in column '{name}': write them as text"
            ) from error

    def _damaged(self, error: Exception) -> InputError:
        return InputError(
            f"'{self.path}' is no readable Parquet file ({first_line(error)}): write it again"
        )


def check_memory(size: int, what: str) -> None:
    """Refuse `what` if its `size` in bytes is more than the memory that is free."""
    free = _free_memory()
    if free is not None and size > free:
        raise InputError(
            f"{what} takes {size / 2**30:,.1f} GiB and {free / 2**30:,.1f} GiB of memory are free: "
            "bring a smaller graph, or more memory"
        )


def _free_memory() -> int | None:
    """Bytes that a process can still get; all of the machine's where the system does not tell."""
    try:
        available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        if available:
            return int(available[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _check_header(table: Table) -> None:
    columns = table.columns
    if not columns:
        raise InputError(f"'{table.path}' is empty: its first line must name the columns")
    long = [name for name in columns if len(name) > LONGEST_NAME]
    if long:
        raise InputError(
            f"'{table.path}' has a column name of {len(long[0]):,} characters: its first line must "
            "name the columns"
        )
    if len(columns) == 1 and re.search("[;\t]", columns[0]):
        raise InputError(f"'{table.path}' has the header {columns[0]!r}: separate cells by commas")
    if "" in columns:
        place = columns.index("") + 1
        raise InputError(
            f"'{table.path}' has no name for column {place}: name it, or leave it out (pandas "
            "writes no index with index=False)"
        )
    odd = [name for name in columns if not name.isprintable()]
    if odd:
        raise InputError(f"'{table.path}' has a column {odd[0]!r}: name it in plain letters")
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise InputError(f"'{table.path}' has two columns '{min(repeated)}': rename one of them")


def _rows_per_chunk(columns: int) -> int:
    return max(1, min(MOST_ROWS, CELLS // max(columns, 1)))


def _transpose(rows: list[list[str]], places: dict[str, int]) -> Chunk:
    return {name: np.array([row[i] for row in rows], dtype=object) for name, i in places.items()}


def _is_readable(kind: Any) -> bool:
    """Whether a type of pyarrow is one of those that `_cells` knows."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_readable(kind.value_type)
    known = [types.is_boolean, types.is_integer, types.is_floating, types.is_decimal]
    known += [types.is_temporal, types.is_string, types.is_large_string, types.is_null]
    timeless = types.is_time(kind) or types.is_duration(kind) or types.is_interval(kind)
    return any(is_kind(kind) for is_kind in known) and not timeless


def _cells(column: Any) -> np.ndarray:
    """A column of pyarrow as numpy array."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_integer(kind) and column.null_count == 0:
        integers = column.to_numpy()
        if integers.size and integers.max() >= 2**63:
            raise OverflowError
        return integers.astype(np.int64, copy=False)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if types.is_temporal(kind):
        instants = column.cast(pa.timestamp("us"), safe=False)
        return instants.to_numpy(zero_copy_only=False).astype("datetime64[us]")
    if types.is_boolean(kind) and column.null_count == 0:
        return column.to_numpy(zero_copy_only=False)
    if types.is_boolean(kind):
        words = {True: "True", False: "False", None: ""}
        return np.array([words[cell] for cell in column.to_pylist()], dtype=object)
    return column.cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False)

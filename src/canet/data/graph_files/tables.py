"""CSV and Parquet files, read by pyarrow into tables with six types of columns.

The types are int64, float64, bool, timestamp (microseconds, UTC), string and null. An empty cell
is null.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyarrow import types

from canet.errors import InputError, first_line
from canet.util.files import check_regular
from canet.util.memory import check_memory

INSTANT = pa.timestamp("us")
BLOCK_BYTES = 2**23
"""Of a CSV file that a thread reads at once; a row must fit into it."""
BUFFER_BYTES = 2**20
"""Of a column of a Parquet file; without a buffer the whole file is in memory next to its table."""


@dataclass(frozen=True)
class TableFile:
    """A file of named columns."""

    path: Path
    columns: list[str]
    header_lines: int = 0  # of a CSV file, before its first row

    @property
    def is_csv(self) -> bool:
        return self.path.suffix == ".csv"

    def read(self, names: Sequence[str], text: Collection[str] = ()) -> pa.Table:
        """The columns `names`; in CSV, those also in `text` are text, whatever they look like."""
        with _read_errors(self.path):
            if self.is_csv:
                table = self._read_csv(names, text)
            else:
                file = pq.ParquetFile(self.path, buffer_size=BUFFER_BYTES, pre_buffer=False)
                check_memory(8 * file.metadata.num_rows * len(names), f"'{self.path}'")
                table = file.read(columns=list(names))
        return pa.table({name: self._plain(name, table[name]) for name in names})

    def _read_csv(self, names: Sequence[str], text: Collection[str]) -> pa.Table:
        try:
            table = self._parse_csv(names, text)
        except pa.ArrowInvalid:
            self._parse_csv(names, text, use_threads=False)  # its error has the row's number
            raise
        times = {f.name for f in table.schema if types.is_time(f.type)}
        return self._parse_csv(names, times.union(text)) if times else table

    def _parse_csv(
        self, names: Sequence[str], text: Collection[str], use_threads: bool = True
    ) -> pa.Table:
        return pa_csv.read_csv(
            self.path,
            pa_csv.ReadOptions(
                use_threads=use_threads,
                block_size=BLOCK_BYTES,
                skip_rows=self.header_lines,
                column_names=self.columns,
            ),
            pa_csv.ParseOptions(newlines_in_values=True),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(text, pa.string()),
                include_columns=list(names),
                null_values=["", " "],
                strings_can_be_null=True,
                true_values=["true", "True", "TRUE"],
                false_values=["false", "False", "FALSE"],
            ),
        )

    def _plain(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The column in one of the six types."""
        try:
            if types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            kind = column.type
            if types.is_integer(kind):
                return column.cast(pa.int64())
            if types.is_floating(kind) or types.is_decimal(kind):
                return column.cast(pa.float64(), safe=False)
            if types.is_temporal(kind):
                return column.cast(INSTANT, safe=False)
            if types.is_boolean(kind) or types.is_null(kind):
                return column
            text = column.cast(pa.string())
        except pa.ArrowNotImplementedError as error:
            raise InputError(
                f"'{self.path}' has {column.type} in column '{name}': a cell must be one number or "
                "text; make a column of each entry, or remove the column"
            ) from error
        except pa.ArrowInvalid as error:
            raise InputError(
                f"'{self.path}' has cells in column '{name}' that cannot be read "
                f"({first_line(error)}): write them as UTF-8 text"
            ) from error
        text = pc.utf8_ltrim_whitespace(text) if self.is_csv else text
        return pc.if_else(pc.equal(text, ""), None, text)


def find_table(folder: Path, name: str) -> TableFile:
    """The table `name`.csv or `name`.parquet of a folder."""
    found = [path for kind in ("csv", "parquet") if (path := folder / f"{name}.{kind}").exists()]
    if not found:
        raise InputError(f"'{folder}' has neither {name}.csv nor {name}.parquet: add one of them")
    if len(found) > 1:
        raise InputError(f"'{folder}' has both {name}.csv and {name}.parquet: keep one of them")
    (path,) = found
    with _read_errors(path):
        check_regular(path)
        if path.suffix == ".csv":
            table = TableFile(path, *_csv_header(path))
        else:
            table = TableFile(path, pq.ParquetFile(path).schema_arrow.names)
    _check_header(table)
    return table


def _csv_header(path: Path) -> tuple[list[str], int]:
    """The names of the columns, and how many lines they and blank lines before them take."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, skipinitialspace=True)
        names = [name.strip() for name in next(filter(None, reader), [])]
        return names, reader.line_num


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """What pyarrow and Python say about a file as an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not UTF-8: save it as UTF-8") from error
    except (pa.ArrowException, csv.Error, OSError, ValueError) as error:
        cells = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if cells:
            row, width, count = cells.groups()
            raise InputError(
                f"'{path}' has {count} cells in line {row} and {width} in its header: put quotes "
                "around cells that contain commas"
            ) from error
        raise InputError(
            f"'{path}' cannot be read ({first_line(error)}): write the file again"
        ) from error


def _check_header(table: TableFile) -> None:
    path, columns = table.path, table.columns
    if not columns:
        raise InputError(f"'{path}' is empty: its first line must name the columns")
    if len(columns) == 1 and re.search("[;\t]", columns[0]):
        raise InputError(f"'{path}' has the header {columns[0][:40]!r}: separate cells by commas")
    if "" in columns:
        raise InputError(
            f"'{path}' has no name for column {columns.index('') + 1}: name it, or remove it "
            "(pandas writes no index with index=False)"
        )
    (name, count), *_ = Counter(columns).most_common(1)
    if count > 1:
        raise InputError(f"'{path}' has two columns '{name}': rename one of them")

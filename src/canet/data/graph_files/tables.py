"""Tables of nodes and edges: CSV and Parquet files, pandas, Arrow, polars and networkx.

A column of the tables has one of six types: int64, float64, bool, timestamp (microseconds, UTC),
string or null. Empty cells are null.
"""

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyarrow import types

from canet.errors import InputError, first_line
from canet.util.files import check_regular
from canet.util.memory import check_memory

Names = Sequence[str]
TIMESTAMP = pa.timestamp("us")
BLOCK_BYTES = 2**23  # part of a CSV file that a thread reads at once; a row must fit into it
BUFFER_BYTES = 2**20
"""Buffer for a column of a Parquet file; without it the whole file would be read into memory."""
SEPARATORS = (",", ";", "|", "\t")
EMPTY_WORDS = ("na", "n/a", "#n/a", "nan", "null", "none", "?", "-")
"""Words for an empty cell in a column whose other cells are numbers, dates or booleans."""
NUMBERS = {
    decimal: r"^[-+]?(\p{Sc}\p{Zs}?)?"
    rf"((\d+|[1-9]\d{{0,2}}({group}\d{{3}})+)({point}\d*)?|{point}\d+|inf)"
    r"([eE][-+]?\d+)?(\p{Zs}?[%\p{Sc}])?$"
    for decimal, point, group in ((".", r"\.", ","), (",", ",", r"[.\p{Zs}]"))
}
"""Decimal mark → numbers such as -1.5, 1,234.5, $20, 20.50 € or 7 %."""
CODE = r"^-?\d+(\.0)?$"
"""Text that is no number in a table with types, whose other columns are numbers already."""
BOOLEAN, DATE = "(?i)^(true|false)$", r"^\d{4}-\d{2}-\d{2}"


@dataclass(frozen=True)
class TableFile:
    """A CSV or Parquet file with named columns."""

    path: Path
    columns: list[str]
    header_lines: int = 0  # lines before the first row of a CSV file
    sep: str = ","

    @property
    def is_csv(self) -> bool:
        return self.path.suffix.lower() == ".csv"

    def read(self, names: Names, text: Collection[str] = (), decimal: str = ".") -> pa.Table:
        """Read the columns `names`; columns that are also in `text` stay text."""
        with _read_errors(self.path):
            csv = self.is_csv
            table = self._read_csv(names, text, decimal) if csv else self._read_parquet(names)
        return _clean(table, self.path, text, decimal, has_types=not csv)

    def _read_parquet(self, names: Names) -> pa.Table:
        """Read columns that fit into memory; each word of a text column is in memory once."""
        about = pq.read_metadata(self.path)
        starts = tuple(f"{name}." for name in names)  # an array in a cell has a longer path
        paths = [f"{about.schema.column(i).path}." for i in range(about.num_columns)]
        columns = [i for i, path in enumerate(paths) if path.startswith(starts)]
        groups = map(about.row_group, range(about.num_row_groups))
        size = sum(group.column(i).total_uncompressed_size for group in groups for i in columns)
        check_memory(max(size, 8 * about.num_rows * len(names)), f"'{self.path}'")
        options = {"buffer_size": BUFFER_BYTES, "pre_buffer": False, "read_dictionary": columns}
        return pq.ParquetFile(self.path, metadata=about, **options).read(columns=[*names])

    def _read_csv(self, names: Names, text: Collection[str], decimal: str) -> pa.Table:
        try:
            table = self._parse_csv(names, text, decimal)
        except pa.ArrowInvalid:
            self._parse_csv(names, text, decimal, use_threads=False)  # its error names the row
            raise
        times = {f.name for f in table.schema if types.is_time(f.type)}
        return self._parse_csv(names, times.union(text), decimal) if times else table

    def _parse_csv(
        self, names: Names, text: Collection[str], decimal: str, use_threads: bool = True
    ) -> pa.Table:
        return pa_csv.read_csv(
            self.path,
            pa_csv.ReadOptions(
                use_threads=use_threads,
                block_size=BLOCK_BYTES,
                skip_rows=self.header_lines,
                column_names=self.columns,
            ),
            pa_csv.ParseOptions(delimiter=self.sep, newlines_in_values=True),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(text, pa.string()),
                include_columns=list(names),
                decimal_point=decimal,
                null_values=["", " "],
                strings_can_be_null=True,
                true_values=["true", "True", "TRUE"],
                false_values=["false", "False", "FALSE"],
            ),
        )


@dataclass(frozen=True)
class MemoryTable:
    """A table in memory with the interface of `TableFile`."""

    path: Path  # its name in messages
    table: pa.Table
    is_csv: ClassVar = False

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def read(self, names: Names, text: Collection[str] = (), decimal: str = ".") -> pa.Table:
        """Return the columns `names`; columns that are also in `text` stay text."""
        return _clean(self.table.select(names), self.path, text, decimal, has_types=True)


NamedTable = TableFile | MemoryTable


def _clean(
    table: pa.Table, path: Path, text: Collection[str], decimal: str, has_types: bool
) -> pa.Table:
    """Return columns of the six types; those in `text` stay text. One rule for all tables."""
    columns = {name: normalise_type(table[name], name, path) for name in table.column_names}
    for name, column in columns.items():
        if column.type == pa.string():
            words = pc.utf8_trim_whitespace(column)
            columns[name] = words = pc.if_else(pc.equal(words, ""), None, words)
            if name not in text and not (has_types and _all_match(words, CODE)):
                columns[name] = _parse(words, decimal)
    return pa.table(columns)


def _parse(words: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    """Return numbers, booleans or dates if all words are, apart from words for an empty cell."""
    filled = without_empty_words(words)
    if filled.null_count == len(filled):
        return words
    if _all_match(filled, NUMBERS[decimal]):
        group = "," if decimal == "." else "."
        filled = pc.replace_substring_regex(filled, rf"[{group}%\p{{Sc}}\p{{Zs}}]", "")
        return pc.replace_substring(filled, ",", ".").cast(pa.float64())
    if _all_match(filled, BOOLEAN):
        return filled.cast(pa.bool_())
    for kind in (TIMESTAMP, pa.timestamp("us", "UTC")) if _all_match(filled, DATE) else ():
        try:
            return filled.cast(kind).cast(TIMESTAMP)
        except pa.ArrowInvalid:
            continue  # not a date, such as 2024-31-31
    return words


def _all_match(words: pa.ChunkedArray, pattern: str) -> bool:
    parts = (words[:1000], words)  # most text does not match in its first cells
    matches = (pc.match_substring_regex(part, pattern) for part in parts)
    return all(pc.all(match, min_count=0).as_py() for match in matches)


def without_empty_words(words: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.is_in(pc.utf8_lower(words), pa.array(EMPTY_WORDS)), None, words)


def normalise_type(column: pa.ChunkedArray, name: str, path: Path) -> pa.ChunkedArray:
    """Convert a column to one of the six types."""
    try:
        if types.is_dictionary(column.type):
            check_memory(_text_bytes(column), f"column '{name}' of '{path}'")
            column = column.cast(column.type.value_type)
        kind = column.type
        if types.is_integer(kind):
            return column.cast(pa.int64())
        if types.is_floating(kind) or types.is_decimal(kind):
            return column.cast(pa.float64(), safe=False)
        if types.is_temporal(kind):
            return column.cast(TIMESTAMP, safe=False)
        if types.is_boolean(kind) or types.is_null(kind):
            return column
        return column.cast(pa.string())
    except pa.ArrowNotImplementedError as error:
        raise InputError(
            f"column '{name}' of '{path}' has the type {column.type}, but a cell must be one "
            "number or text: make a column for each entry, or leave the column out "
            f"(without=['{name}'] or --without {name})"
        ) from error
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column '{name}' of '{path}' contains cells that cannot be read "
            f"({first_line(error)}): write them as UTF-8 text"
        ) from error


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Return the size of the text in a dictionary column, in which each word is stored once."""
    if not types.is_string(column.type.value_type):
        return 0
    lengths = (pc.binary_length(part.dictionary).take(part.indices) for part in column.chunks)
    return sum(pc.sum(part.cast(pa.int64())).as_py() or 0 for part in lengths)


def find_table(folder: Path, name: str, sep: str = ",") -> TableFile:
    """Find the table `name`.csv or `name`.parquet in a folder; capital letters do not matter."""
    files = (f"{name}.csv", f"{name}.parquet")
    found = sorted(path for path in folder.iterdir() if path.name.lower() in files)
    if not found:
        raise InputError(
            f"'{folder}' contains neither {name}.csv nor {name}.parquet: add one of them"
        )
    if len(found) > 1:
        raise InputError(
            f"'{folder}' contains both {found[0].name} and {found[1].name}: remove one of them"
        )
    (path,) = found
    with _read_errors(path):
        check_regular(path)
        if path.suffix.lower() == ".csv":
            with path.open(newline="", encoding="utf-8-sig") as file:
                lines = csv.reader(file, skipinitialspace=True, delimiter=sep)
                names = [name.strip() for name in next(filter(None, lines), [])]
            table = TableFile(path, names, lines.line_num, sep)
        else:
            table = TableFile(path, pq.ParquetFile(path).schema_arrow.names)
    _check_header(table.path, table.columns)
    return table


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Convert errors of pyarrow and Python about a file to an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not encoded in UTF-8: save it as UTF-8") from error
    except (pa.ArrowException, csv.Error, OSError, ValueError) as error:
        cells = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if cells:
            row, width, count = cells.groups()
            raise InputError(
                f"line {row} of '{path}' has {count} cells, but the header has {width}: put quotes "
                "around cells that contain the separator"
            ) from error
        raise InputError(
            f"'{path}' cannot be read ({first_line(error)}): check that it is a valid "
            f"{path.suffix[1:]} file, or write it again"
        ) from error


def _check_header(path: Path, columns: list[str]) -> None:
    if not columns:
        raise InputError(f"'{path}' is empty: its first line must contain the column names")
    if len(columns) == 1 and (found := re.search("[,;|\t]", columns[0])):
        raise InputError(
            f"'{path}' has only one column, {columns[0][:40]!r}: read it with sep={found[0]!r} "
            f"(--sep {found[0]!r})"
        )
    if "" in columns:
        raise InputError(
            f"column {columns.index('') + 1} of '{path}' has no name: add a name or remove the "
            "column (in pandas, use to_csv(..., index=False))"
        )
    (name, count), *_ = Counter(columns).most_common(1)
    if count > 1:
        raise InputError(f"'{path}' has two columns with the name '{name}': rename one of them")


def is_table(source: object) -> bool:
    """Whether an object is a table of pandas, Arrow or polars."""
    has_columns = hasattr(source, "columns") or hasattr(source, "column_names")
    return has_columns and (
        hasattr(source, "__arrow_c_stream__") or _is_from("pandas", source, "iloc")
    )


def tables_in_memory(source: object) -> tuple[MemoryTable, MemoryTable]:
    """Return the tables of nodes and edges of a networkx graph or of a pair of tables."""
    if _is_from("networkx", source, "adj"):
        return _networkx_tables(source)
    given, edges = source, None
    if isinstance(source, tuple | list) and len(source) == 2:
        given, edges = source
    if not is_table(given):
        kind = type(given).__name__
        if kind == "HeteroData":
            raise InputError(
                "HeteroData has several types of nodes: put all nodes into one table with a column "
                "for the type, or use data.to_homogeneous() and add one-hot types to x"
            )
        raise InputError(
            f"the graph is a {kind}: pass a folder with nodes.csv and edges.csv, a tuple of two "
            "tables (nodes, edges), a networkx graph, or a PyG Data; for cross_val_score and other "
            "tools of scikit-learn, use canet.OnGraph"
        )
    if not is_table(edges):
        raise InputError(
            f"edges is a {type(edges).__name__}: pass two tables, fit(nodes, edges, label='COLUMN')"
            " and predict((nodes, edges))"
        )
    return _table(given, "nodes"), _table(edges, "edges")


def _table(source: Any, name: str) -> MemoryTable:
    try:
        if _is_from("pandas", source, "iloc"):
            keep_index = source.index.name is not None
            table = pa.Table.from_pandas(source, preserve_index=keep_index)
        else:
            table = pa.table(source)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        count = len(source.columns) if hasattr(source, "iloc") else 0
        for number in range(count if count > 1 else 0):
            _table(source.iloc[:, [number]], name)  # its error names the column
        what = f"column '{source.columns[0]}' of the table" if count == 1 else "the table"
        raise InputError(
            f"{what} of {name} cannot be read ({first_line(error)}): give each column one type and "
            "one name, for example with .astype(str) or pandas.to_numeric(…, errors='coerce')"
        ) from error
    return MemoryTable(Path(name), table)


def _networkx_tables(graph: Any) -> tuple[MemoryTable, MemoryTable]:
    """Convert attributes to columns; an undirected edge becomes two edges."""
    names = list(graph)
    if not all(isinstance(name, int) for name in names):
        names = [str(name) for name in names]
    number = {name: row for row, name in enumerate(graph)}
    attributes = [values for _, values in graph.nodes(data=True)]
    columns = dict.fromkeys(str(key) for values in attributes for key in values)
    links = list(graph.edges(data=True))
    if not graph.is_directed():
        links += [(target, source, v) for source, target, v in links if source != target]
    try:
        nodes = {
            key: pa.array([v.get(key) for v in attributes], from_pandas=True) for key in columns
        }
        weights = pa.array([v.get("weight") for *_, v in links], from_pandas=True)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(
            f"an attribute of the networkx graph has values of different types "
            f"({first_line(error)}): convert them to one type"
        ) from error
    keys = dict.fromkeys(key for *_, values in links for key in values)
    edges = {str(key): _attribute(links, key) for key in keys if key != "weight"}
    edges["source"] = pa.array([names[number[source]] for source, *_ in links])
    edges["target"] = pa.array([names[number[target]] for _, target, _ in links])
    if weights.null_count < len(weights):
        edges["weight"] = weights.cast(pa.float64()).fill_null(1.0)
    path = Path("networkx graph")
    return (
        MemoryTable(path, pa.table({**nodes, "id": pa.array(names)})),
        MemoryTable(Path("edges of the networkx graph"), pa.table(edges)),
    )


def _attribute(links: list[Any], key: object) -> pa.Array:
    """Return an attribute of edges; empty if its values have no type in common."""
    try:
        return pa.array([values.get(key) for *_, values in links], from_pandas=True)
    except (pa.ArrowException, OverflowError):
        return pa.nulls(len(links))


def _is_from(package: str, source: object, attribute: str) -> bool:
    """Whether the class of an object is in a package, which is not imported, with an attribute."""
    return type(source).__module__.partition(".")[0] == package and hasattr(source, attribute)

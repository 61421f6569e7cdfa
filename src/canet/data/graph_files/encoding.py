"""The encoding of table columns as features: learnt on one graph, applied to later graphs."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.graph_files.summary import (
    ColumnSummary,
    check_finite,
    check_present,
    column_blocks,
    find_column,
    number_hint,
    number_matrix,
)
from canet.data.graph_files.tables import NUMBERS, SEPARATORS
from canet.data.graph_files.values import ArrowColumn, as_text, raise_error
from canet.errors import InputError, check_name, listed, printable
from canet.util.memory import check_memory
from canet.util.sparse import from_scipy

Kind = Literal["number", "count", "date", "indicator", "category", "constant"]
Fill = Literal["mean", "median", "most_frequent"]
"""The number that replaces an empty cell: a statistic of the column in training."""
Names = Mapping[str, Sequence[str | None]]  # role → default names in the order of preference
STRICT = {"extra": "forbid", "allow_inf_nan": False}
"""How pydantic reads these classes: no other entries, and finite numbers."""
MIN_SPARSE_FEATURES, MAX_SPARSE_SHARE = 256, 0.1
"""x is sparse if it has more features and a smaller share of nonzero entries than this.

A column of numbers ≥ 0 with a smaller share of nonzero numbers is a column of counts.
"""


@dataclass(frozen=True)
class Roles:
    """Names of the columns that are not features; None if there is no column for a role."""

    __pydantic_config__: ClassVar = STRICT

    id: str | None = None
    label: str | None = None
    split: str | None = None
    environment: str | None = None
    time: str | None = None
    sample_weight: str | None = None
    # Columns of the edges.
    weight: str | None = None
    source: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        for role, name in vars(self).items():
            if not isinstance(name, str | None):
                raise InputError(f"{role} is {str(name)[:60]!r}: pass the name of one column")

    def names(self) -> list[str]:
        """Return the distinct names of the columns of nodes with a role."""
        names = asdict(replace(self, weight=None, source=None, target=None)).values()
        return list(dict.fromkeys(name for name in names if name is not None))

    def resolve(
        self, available: Collection[str], defaults: Names, path: Path, kind: str = "column"
    ) -> "Roles":
        """Fill roles that are None with the first of their default names that is available."""
        check_present(self.names(), available, path, kind)
        names = asdict(self)
        for role in (role for role, name in names.items() if name is None):
            found = (find_column(name, available) for name in defaults.get(role, ()) if name)
            names[role] = next(filter(None, found), None)
        return Roles(**names)


@dataclass(frozen=True)
class ReadOptions:
    """How to read a graph: the roles of columns, columns to leave out, and the form of cells."""

    roles: Roles = Roles()
    without: tuple[str, ...] = ()
    fill: Fill = "mean"
    decimal: str = ""  # empty: as in training, or a point
    sep: str = ""  # empty: as in training, or a comma
    held_out: np.ndarray | None = None  # rows of test nodes, if there is no column of splits
    earlier: Roles = Roles()  # names of the arrays of training, if they are not the default
    # Names of ignored columns that a warning listed. A model reads all graphs with the same set.
    reported: set[tuple[str, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        check_name("fill", self.fill, get_args(Fill))
        for name, valid in (("decimal", tuple(NUMBERS)), ("sep", SEPARATORS)):
            if (given := getattr(self, name)) not in ("", *valid):
                raise_error(f"{name} is {given!r}: pass one of {', '.join(map(repr, valid))}")

    @classmethod
    def of(
        cls,
        *,
        source_column: str | None = None,
        target_column: str | None = None,
        without: str | int | Iterable[str | int] = (),
        fill: Fill = "mean",
        decimal: str | None = None,
        sep: str | None = None,
        **roles: str | None,
    ) -> Self:
        """Return the options for arguments of `read_graph`; `without` may be a single name."""
        is_list = isinstance(without, Iterable) and not isinstance(without, str)
        names: Iterable[Any] = without if is_list else [without]  # type: ignore[assignment]
        columns = Roles(**roles, source=source_column, target=target_column)
        sep = "\t" if sep == "\\t" else sep  # as it is typed in a shell
        return cls(columns, tuple(map(str, names)), fill, decimal or "", sep or "")

    def reports(self, ignored: Sequence[str]) -> bool:
        """Whether to warn about ignored columns: there are some, and it is the first time."""
        is_new = bool(ignored) and tuple(ignored) not in self.reported
        self.reported.add(tuple(ignored))
        return is_new


@dataclass(frozen=True)
class ColumnEncoding:
    """The encoding of one column.

    - `number` and `date` become $(v - mean) / std$; a date is converted to seconds first.
    - `count` is mostly 0 and becomes $v / std$, so that 0 stays 0.
    - `indicator` contains 0 and 1 and is not changed.
    - `category` becomes one feature for each of `categories` (one-hot).
    - `constant` had one value in training and becomes 0 in every graph.

    An empty cell of `number`, `count`, `date` and `indicator` is replaced by `fill`. If the column
    had empty cells in training, another feature is 1 where it is empty (`marks_empty`).
    """

    __pydantic_config__: ClassVar = STRICT

    name: str
    kind: Kind
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()
    empty: int = 0  # number of empty cells in training
    fill: float | None = None  # None: the mean
    marks_empty: bool = False

    @classmethod
    def learn(cls, column: ColumnSummary) -> Self:
        """Learn the encoding of a column that is not empty."""
        if column.kind == "text" and column.varies:
            return cls(column.name, "category", categories=column.words, empty=column.empty)
        if not column.varies and not column.marks_empty:
            return cls(column.name, "constant")
        kind: Kind = "date" if column.kind == "date" else "number"
        mean, std = column.mean, column.std if column.varies else 1.0
        if column.is_binary:
            kind, mean, std = "indicator", 0.0, 1.0
        elif kind == "number" and column.low == 0 and column.nonzero < MAX_SPARSE_SHARE:
            kind, mean = "count", 0.0
        rest = (column.empty, column.fill, column.marks_empty)
        return cls(column.name, kind, mean, std, (), *rest)

    @property
    def names(self) -> list[str]:
        if self.kind == "category":
            return [f"{self.name}={category}" for category in self.categories]
        return [self.name, f"{self.name}=empty"] if self.marks_empty else [self.name]

    def __str__(self) -> str:
        text = f"{self.name}: {self.kind}"
        if self.kind == "category":
            return f"{text}, {len(self.categories):,} values ({listed(self.categories)})"
        if self.kind in ("number", "date"):
            text += f", mean {self.mean:.6g}, standard deviation {self.std:.6g}"
        if self.kind == "count":
            text += f", divided by {self.std:.6g}"
        if self.marks_empty:
            text += f", empty cells filled with {self.fill:.6g} and marked in '{self.names[1]}'"
        return text


@dataclass(frozen=True, repr=False)
class Encoding:
    """The encoding of all columns of a table."""

    __pydantic_config__: ClassVar = STRICT

    columns: tuple[ColumnEncoding, ...]  # in the order of the features
    roles: Roles = Roles()
    layout: Literal["dense", "sparse"] = "dense"  # layout of x
    left_out: tuple[str, ...] = ()  # empty columns, free text, and those the user left out
    fill: Fill = "mean"  # how the number for empty cells was computed
    decimal: str = "."  # decimal mark of numbers in text
    sep: str = ","  # separator of CSV files

    @classmethod
    def learn(
        cls,
        summaries: Mapping[str, ColumnSummary],
        roles: Roles,
        free_text: Collection[str],
        options: ReadOptions,
    ) -> Self:
        """Learn the encoding of the columns of a table, without those with free text."""
        empty = [name for name, column in summaries.items() if column.kind == "empty"]
        left_out = (*empty, *options.without, *free_text)
        used = [column for name, column in summaries.items() if name not in left_out]
        columns = tuple(ColumnEncoding.learn(column) for column in used)
        total = sum(len(column.names) for column in columns)
        nonzero = sum(  # mean number of nonzero features of a node
            summaries[c.name].nonzero
            if c.kind in ("indicator", "count")
            else float(c.kind != "constant")
            for c in columns
        )
        is_sparse = total > MIN_SPARSE_FEATURES and nonzero < MAX_SPARSE_SHARE * total
        layout: Literal["dense", "sparse"] = "sparse" if is_sparse else "dense"
        how = options.fill, options.decimal, options.sep
        return cls(columns, roles, layout, left_out, *how)

    def __repr__(self) -> str:
        return f"Encoding({len(self.columns)} columns → {len(self.names)} features)"

    def __str__(self) -> str:
        lines = [repr(self), *(f"  {column}" for column in self.columns)]
        if self.left_out:
            lines.append(f"  left out: {', '.join(self.left_out)}")
        return "\n".join(map(printable, lines))

    @property
    def names(self) -> list[str]:
        """Names of the D features: `column`, or `column=category`."""
        return [name for column in self.columns for name in column.names]

    @property
    def marks(self) -> list[list[int]]:
        """Pairs of features: a filled column, and the one that marks its empty cells."""
        return [self.blocks[column.name] for column in self.columns if column.marks_empty]

    @property
    def blocks(self) -> dict[str, list[int]]:
        """Column name → positions of its features among the D features."""
        position = count()
        return {c.name: [next(position) for _ in c.names] for c in self.columns}

    @property
    def sources(self) -> list[int]:
        """Number of the column of each of the D features."""
        return [number for number, column in enumerate(self.columns) for _ in column.names]

    @property
    def scales(self) -> list[ColumnEncoding | None]:
        """The column whose scaled numbers each of the D features holds; None for 0 and 1."""
        scaled = ("number", "count", "date")
        return [
            column if column.kind in scaled and i == 0 else None
            for column in self.columns
            for i in range(len(column.names))
        ]

    def notes(self) -> list[str]:
        """Describe in lines of text how the columns were encoded."""
        lines = [
            f"text column '{c.name}' was encoded as {len(c.categories):,} categories "
            f"({listed(c.categories)})" + f"; empty cells: {c.empty:,}" * (c.empty > 0)
            for c in self.columns
            if c.kind == "category"
        ]
        texts = {
            "number": "columns standardised to mean 0 and standard deviation 1",
            "count": "columns that are mostly 0, divided by their standard deviation",
            "date": "columns with dates, as numbers (better as time, or left out)",
            "constant": "columns with the same value for all nodes outside the test set, set to 0",
        }
        named = {text: [c.name for c in self.columns if c.kind == k] for k, text in texts.items()}
        how = self.fill.replace("_", " ") + (" value" if self.fill == "most_frequent" else "")
        named[f"empty cells filled with the {how} and marked in another feature"] = [
            f"{c.name} ({c.empty:,})" for c in self.columns if c.marks_empty
        ]
        named["columns left out (empty, free text, or on request)"] = list(self.left_out)
        return lines + [f"{text}: {listed(names)}" for text, names in named.items() if names]


ACCEPTED_KINDS = {
    "number": {"number"},
    "count": {"number"},
    "date": {"date"},
    "indicator": {"number", "boolean"},
}
"""Kind of a column in training → kinds that it may have in a later graph.

A column of categories may have any kind.
"""
WORDS = {
    "number": "numbers",
    "count": "numbers",
    "date": "dates",
    "indicator": "only 0 and 1",
    "boolean": "true and false",
    "text": "text",
}
"""Content of a column in error messages."""


def check_compatible(
    encoding: Encoding, summaries: dict[str, ColumnSummary], path: Path, table: pa.Table
) -> None:
    """Reject columns of a later graph that have another kind than in training."""
    numeric = [column for column in encoding.columns if column.kind in ACCEPTED_KINDS]
    for column in numeric:
        now = summaries[column.name]
        if now.kind not in {"empty", *ACCEPTED_KINDS[column.kind]}:
            hint = number_hint(table[now.name], encoding.decimal) if now.kind == "text" else None
            found, fix = hint or ("", "convert the column")
            raise_error(
                f"column '{now.name}' of '{path}' contains {WORDS[now.kind]}{found}, but in "
                f"training it contained {WORDS[column.kind]}: {fix}"
            )
    check_finite((summaries[column.name] for column in numeric), path, raise_error)


Differences = dict[str, list[str]]
"""Kind of cells that did not occur in training → the columns with such cells."""


def encode(encoding: Encoding, table: pa.Table, path: Path) -> tuple[Tensor, list[str]]:
    """Return features $[N, D]$, dense or sparse CSR, of a validated table, and warnings."""
    fill = encoding.fill.replace("_", " ")
    texts = {
        "filled": "empty cells in columns without empty cells in training, filled with the "
        f"{fill} of training",
        "not binary": "numbers other than 0 and 1 in columns that had only 0 and 1 in training",
        "new": "categories that did not occur in training and are treated as empty",
    }
    differences: Differences = {kind: [] for kind in texts}
    parts = _parts(encoding, table, differences)
    rows, width = table.num_rows, len(encoding.names)
    if encoding.layout == "sparse":
        pairs = [(places, sp.csr_matrix(part, dtype=np.float32)) for places, part in parts]
        order = np.argsort(np.concatenate([places for places, _ in pairs]))
        x = from_scipy(sp.hstack([part for _, part in pairs], format="csr")[:, order])
    else:
        check_memory(rows * width * 4, f"'{path}' with {width:,} features")
        x = torch.zeros(rows, width)
        for places, part in parts:
            x.numpy()[:, places] = part.toarray() if sp.issparse(part) else part
    found = {texts[kind]: columns for kind, columns in differences.items() if columns}
    return x, [f"'{path}' has {text}: {listed(columns)}" for text, columns in found.items()]


def _parts(
    encoding: Encoding, table: pa.Table, differences: Differences
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield positions $[n]$ of features and their values $[N, n]$, some columns at a time."""
    blocks = encoding.blocks
    numeric = {column.name: column for column in encoding.columns if column.kind in ACCEPTED_KINDS}
    for names in column_blocks(list(numeric), table.num_rows):
        columns = [numeric[name] for name in names]
        values = number_matrix(table, names)
        if marked := [i for i, column in enumerate(columns) if column.marks_empty]:
            places = np.array([blocks[names[i]][1] for i in marked])
            yield places, sp.csr_matrix(np.isnan(values[:, marked]), dtype=np.float32)
        yield (
            np.array([blocks[name][0] for name in names]),
            _standardise(columns, values, differences),
        )
    for column in encoding.columns:
        places = np.array(blocks[column.name])
        if column.kind == "constant":
            yield places, sp.csr_matrix((table.num_rows, 1))
        elif column.kind == "category":
            yield places, _one_hot(column, as_text(table[column.name]), differences)


def _standardise(
    columns: list[ColumnEncoding], values: np.ndarray, differences: Differences
) -> np.ndarray:
    """Fill and standardise the numbers $[N, n]$ of some columns, in place."""
    for column, cells in zip(columns, values.T, strict=True):
        empty = np.isnan(cells)
        if empty.any():
            if not column.marks_empty:
                differences["filled"].append(f"'{column.name}' ({np.count_nonzero(empty):,})")
            cells[empty] = column.mean if column.fill is None else column.fill
        elif column.kind == "indicator" and not ((cells == 0) | (cells == 1)).all():
            differences["not binary"].append(f"'{column.name}' (up to {np.abs(cells).max():g})")
    values -= [column.mean for column in columns]
    values /= [column.std for column in columns]
    return values


def _one_hot(column: ColumnEncoding, text: ArrowColumn, differences: Differences) -> sp.csr_matrix:
    # Earlier versions did not remove spaces around words.
    known_words = pc.utf8_trim_whitespace(pa.array(column.categories, pa.string()))
    codes = pc.index_in(text, value_set=known_words)
    unknown = text.filter(pc.and_(pc.is_null(codes), pc.is_valid(text)))
    if len(unknown):
        example = unknown[0].as_py()[:40]
        differences["new"].append(f"'{column.name}' ({len(unknown):,}, such as {example!r})")
    starts = np.concatenate([[0], np.cumsum(pc.is_valid(codes).to_numpy())])
    known = codes.drop_null().to_numpy()
    shape = (len(codes), len(column.categories))
    return sp.csr_matrix((np.ones(len(known), dtype=np.float32), known, starts), shape)

"""How the columns of a table become features: learnt on one graph, applied again to later ones."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from canet.data.graph_files.survey import ColumnSurvey, Survey
from canet.errors import CanetError, listed

Kind = Literal["number", "date", "indicator", "category", "constant"]
SPARSE_FEATURES, SPARSE_SHARE = 256, 0.1
"""More features than the one, of which less than the other are not zero, are a sparse matrix."""


@dataclass(frozen=True)
class Roles:
    """Names of the columns that are no features; None: there is none, or none was asked for."""

    id: str | None = None
    label: str | None = None
    split: str | None = None
    environment: str | None = None
    time: str | None = None

    def names(self) -> list[str]:
        """The columns that have a role, each once."""
        return list(dict.fromkeys(name for name in asdict(self).values() if name is not None))


@dataclass(frozen=True)
class ColumnEncoding:
    """How one column becomes features.

    Args:
        name: Of the column.
        kind: `number` and `date` become $(v - mean) / std$, a date counting its seconds; an
            `indicator` is 0 or 1 and stays; a `category` becomes one feature for each of
            `categories`, 1 where the cell is that; a `constant` never varied, so nothing was learnt
            of it, and is 0 in every graph.
        mean, std: Of the numbers outside the test set.
        categories: Different texts outside the test set, in order.
        empty: How many cells were empty; they have no category.
    """

    name: str
    kind: Kind
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()
    empty: int = 0

    @property
    def names(self) -> list[str]:
        """Of its features."""
        if self.kind == "category":
            return [f"{self.name}={category}" for category in self.categories]
        return [self.name]


@dataclass(frozen=True, repr=False)
class Encoding:
    """How columns became features.

    Args:
        columns: In the order of the features.
        roles: Which columns are no features.
        layout: Of x: a sparse matrix where nearly all entries are zero.
        left_out: Columns without content.
    """

    columns: tuple[ColumnEncoding, ...]
    roles: Roles = Roles()
    layout: Literal["dense", "sparse"] = "dense"
    left_out: tuple[str, ...] = ()

    @classmethod
    def learn(cls, found: Survey, roles: Roles) -> Encoding:
        """The encoding of the columns that were found in a table."""
        filled = [column for column in found.columns.values() if column.kind != "empty"]
        columns = tuple(_encoding_of(column) for column in filled)
        ones = sum(_nonzero_share(e, found.columns[e.name]) for e in columns)
        count = sum(len(column.names) for column in columns)
        sparse = count > SPARSE_FEATURES and ones < SPARSE_SHARE * count
        empty = tuple(name for name, column in found.columns.items() if column.kind == "empty")
        return cls(columns, roles, "sparse" if sparse else "dense", empty)

    def __repr__(self) -> str:
        return f"Encoding({len(self.columns)} columns → {len(self.names)} features)"

    @property
    def names(self) -> list[str]:
        """Of the D features: `column`, or `column=category`."""
        return [name for column in self.columns for name in column.names]

    @property
    def blocks(self) -> dict[str, list[int]]:
        """Each column → the places of its features among the D."""
        places, start = {}, 0
        for column in self.columns:
            stop = start + len(column.names)
            places[column.name] = list(range(start, stop))
            start = stop
        return places

    def notes(self) -> list[str]:
        """What a person should know of it, a line each."""
        kinds: dict[str, list[str]] = {kind: [] for kind in get_args(Kind)}
        for column in self.columns:
            kinds[column.kind].append(column.name)
        lines = [_category_note(column) for column in self.columns if column.kind == "category"]
        told = {
            "number": "standardised (mean 0, standard deviation 1)",
            "date": "of dates, read as seconds and standardised",
            "constant": "with the same value for all nodes outside the test set, so always 0",
        }
        lines += [_columns_note(kinds[kind], text) for kind, text in told.items() if kinds[kind]]
        if self.left_out:
            lines.append(_columns_note(self.left_out, "empty and left out"))
        return lines

    def to_json(self) -> dict[str, Any]:
        """Plain content for a JSON file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Encoding:
        """The encoding that `to_json` gave, or an error where it is damaged."""
        try:
            columns = tuple(_column_from_json(column) for column in content["columns"])
            roles = Roles(**content["roles"])
            encoding = cls(columns, roles, content["layout"], tuple(content["left_out"]))
            names = [*asdict(roles).values(), *encoding.left_out]
            _require(all(name is None or isinstance(name, str) for name in names))
            _require(encoding.layout in ("dense", "sparse"))
            _require(len(encoding.blocks) == len(columns))
            _require(any(column.kind != "constant" for column in columns))
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise CanetError(
                "the encoding of features is damaged: restore it, or fit the model again"
            ) from error
        return encoding


def _encoding_of(column: ColumnSurvey) -> ColumnEncoding:
    name, moments = column.name, column.moments
    if not column.varies:
        return ColumnEncoding(name, "constant")
    if column.kind == "text":
        categories = tuple(sorted(column.words or ()))
        return ColumnEncoding(name, "category", categories=categories, empty=column.empty)
    if moments.binary:
        return ColumnEncoding(name, "indicator")
    kind: Kind = "date" if column.kind == "date" else "number"
    return ColumnEncoding(name, kind, moments.mean, moments.std)


def _nonzero_share(encoding: ColumnEncoding, column: ColumnSurvey) -> float:
    """Features of the column that are not zero, for a node on average."""
    shares = {"constant": 0.0, "indicator": column.moments.mean, "category": 1.0}
    return shares.get(encoding.kind, 1.0)


def _category_note(column: ColumnEncoding) -> str:
    count = len(column.categories)
    cells = "empty cell has" if column.empty == 1 else "empty cells have"
    empty = f"; {column.empty:,} {cells} none" if column.empty else ""
    word = "category" if count == 1 else "categories"
    return (
        f"text in column '{column.name}' became {count:,} {word} "
        f"({listed(map(_shown, column.categories))}){empty}"
    )


def _shown(category: str) -> str:
    return category if category.isprintable() else repr(category)


def _columns_note(names: Iterable[str], text: str) -> str:
    quoted = [f"'{name}'" for name in names]
    word = "column" if len(quoted) == 1 else "columns"
    return f"{len(quoted):,} {word} {text}: {listed(quoted)}"


def _column_from_json(content: dict[str, Any]) -> ColumnEncoding:
    column = ColumnEncoding(**content | {"categories": tuple(content["categories"])})
    _require(isinstance(column.name, str) and column.kind in get_args(Kind))
    _require(all(isinstance(value, int | float) for value in (column.mean, column.std)))
    _require(math.isfinite(column.mean) and math.isfinite(column.std) and column.std > 0)
    _require(all(isinstance(category, str) for category in column.categories))
    _require(isinstance(column.empty, int) and len(set(column.names)) == len(column.names) > 0)
    "".join(column.names).encode()  # no half of a pair of surrogates, which no file can hold
    return column


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError

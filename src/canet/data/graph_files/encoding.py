"""How the columns of a table become features: learnt on one graph, applied again to later ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from canet.data.graph_files.summary import ColumnSummary, check_present
from canet.errors import CanetError, listed

Kind = Literal["number", "date", "indicator", "category", "constant"]
Names = Mapping[str, Sequence[str | None]]  # of a role, in the order of preference
SPARSE_FEATURES, SPARSE_SHARE = 256, 0.1
"""x is sparse if it has more features than this, and a smaller share that is not zero."""


@dataclass(frozen=True)
class Roles:
    """Names of the columns that are not features; None: there is none, or none was asked for."""

    id: str | None = None
    label: str | None = None
    split: str | None = None
    environment: str | None = None
    time: str | None = None

    def names(self) -> list[str]:
        """The columns that have a role, each once."""
        return list(dict.fromkeys(name for name in asdict(self).values() if name is not None))

    def resolve(
        self, given: Collection[str], usual: Names, path: Path, kind: str = "column"
    ) -> Roles:
        """Names among those `given`: what is asked for here, else the first usual one of a role."""
        check_present(self.names(), given, path, kind)
        names = asdict(self)
        for role in (role for role, name in names.items() if name is None):
            names[role] = next((name for name in usual.get(role, ()) if name in given), None)
        return Roles(**names)


@dataclass(frozen=True)
class ColumnEncoding:
    """How one column becomes features.

    `number` and `date` become $(v - mean) / std$, with a date as its seconds; an `indicator` is 0
    or 1 and is not changed; a `category` becomes one feature for each of `categories`, 1 where the
    cell contains it; a `constant` never varied in training, so it is 0 in every graph.
    """

    name: str
    kind: Kind
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()
    empty: int = 0  # cells, which have no category

    @classmethod
    def learn(cls, column: ColumnSummary) -> ColumnEncoding:
        """The encoding of a column that is not empty."""
        if not column.varies:
            return cls(column.name, "constant")
        if column.kind == "text":
            return cls(column.name, "category", categories=column.words, empty=column.empty)
        if column.is_binary:
            return cls(column.name, "indicator")
        kind: Kind = "date" if column.kind == "date" else "number"
        return cls(column.name, kind, column.mean, column.std)

    @property
    def names(self) -> list[str]:
        """Of its features."""
        if self.kind == "category":
            return [f"{self.name}={category}" for category in self.categories]
        return [self.name]


@dataclass(frozen=True, repr=False)
class Encoding:
    """How columns became features."""

    columns: tuple[ColumnEncoding, ...]  # in the order of the features
    roles: Roles = Roles()
    layout: Literal["dense", "sparse"] = "dense"  # of x: sparse if nearly all entries are zero
    left_out: tuple[str, ...] = ()  # columns without content

    @classmethod
    def learn(cls, found: Mapping[str, ColumnSummary], roles: Roles) -> Encoding:
        """The encoding of the columns of a table."""
        filled = [column for column in found.values() if column.kind != "empty"]
        columns = tuple(ColumnEncoding.learn(column) for column in filled)
        total = sum(len(column.names) for column in columns)
        not_zero = sum(  # of a node's features, on average
            found[c.name].mean if c.kind == "indicator" else float(c.kind != "constant")
            for c in columns
        )
        sparse = total > SPARSE_FEATURES and not_zero < SPARSE_SHARE * total
        empty = tuple(name for name, column in found.items() if column.kind == "empty")
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
        place = count()
        return {c.name: [next(place) for _ in c.names] for c in self.columns}

    @property
    def sources(self) -> list[int]:
        """Number of the column that each of the D features is of."""
        return [number for number, column in enumerate(self.columns) for _ in column.names]

    def notes(self) -> list[str]:
        """What a person should know about it, a line each."""
        lines = [
            f"text in column '{c.name}' became {len(c.categories):,} categories "
            f"({listed(c.categories)})" + f"; {c.empty:,} cells are empty" * (c.empty > 0)
            for c in self.columns
            if c.kind == "category"
        ]
        texts = {
            "number": "standardised (mean 0, standard deviation 1)",
            "date": "dates, read as seconds and standardised",
            "constant": "the same value for all nodes outside the test set, so always 0",
        }
        named = {text: [c.name for c in self.columns if c.kind == k] for k, text in texts.items()}
        named["empty and left out"] = list(self.left_out)
        return lines + [f"{text}: {listed(names)}" for text, names in named.items() if names]

    def to_json(self) -> dict[str, Any]:
        """Plain content for a JSON file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Encoding:
        """The encoding that `to_json` gave."""
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_python(content)
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise CanetError(
                f"the encoding of features has a wrong entry{' ' * bool(place)}{place[:80]}: "
                "restore the file, or fit the model again"
            ) from error

"""The encoding of table columns as features: learnt on one graph, applied to later graphs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from canet.data.graph_files.summary import ColumnSummary, check_present
from canet.errors import CanetError, listed

Kind = Literal["number", "date", "indicator", "category", "constant"]
Names = Mapping[str, Sequence[str | None]]  # role → default names in the order of preference
MIN_SPARSE_FEATURES, MAX_SPARSE_SHARE = 256, 0.1
"""x is sparse if it has more features and a smaller share of nonzero entries than this."""


@dataclass(frozen=True)
class Roles:
    """Names of the columns that are not features; None if there is no column for a role."""

    id: str | None = None
    label: str | None = None
    split: str | None = None
    environment: str | None = None
    time: str | None = None

    def names(self) -> list[str]:
        """Return the distinct names of the columns with a role."""
        return list(dict.fromkeys(name for name in asdict(self).values() if name is not None))

    def resolve(
        self, available: Collection[str], defaults: Names, path: Path, kind: str = "column"
    ) -> Roles:
        """Fill roles that are None with the first of their default names that is available."""
        check_present(self.names(), available, path, kind)
        names = asdict(self)
        for role in (role for role, name in names.items() if name is None):
            names[role] = next((name for name in defaults.get(role, ()) if name in available), None)
        return Roles(**names)


@dataclass(frozen=True)
class ColumnEncoding:
    """The encoding of one column.

    - `number` and `date` become $(v - mean) / std$; a date is converted to seconds first.
    - `indicator` contains 0 and 1 and is not changed.
    - `category` becomes one feature for each of `categories` (one-hot).
    - `constant` had one value in training and becomes 0 in every graph.
    """

    name: str
    kind: Kind
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()
    empty: int = 0  # number of empty cells of a category column

    @classmethod
    def learn(cls, column: ColumnSummary) -> ColumnEncoding:
        """Learn the encoding of a column that is not empty."""
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
        """Names of the features."""
        if self.kind == "category":
            return [f"{self.name}={category}" for category in self.categories]
        return [self.name]


@dataclass(frozen=True, repr=False)
class Encoding:
    """The encoding of all columns of a table."""

    columns: tuple[ColumnEncoding, ...]  # in the order of the features
    roles: Roles = Roles()
    layout: Literal["dense", "sparse"] = "dense"  # layout of x
    left_out: tuple[str, ...] = ()  # empty columns

    @classmethod
    def learn(cls, summaries: Mapping[str, ColumnSummary], roles: Roles) -> Encoding:
        """Learn the encoding of the columns of a table."""
        filled = [column for column in summaries.values() if column.kind != "empty"]
        columns = tuple(ColumnEncoding.learn(column) for column in filled)
        total = sum(len(column.names) for column in columns)
        nonzero = sum(  # mean number of nonzero features of a node
            summaries[c.name].mean if c.kind == "indicator" else float(c.kind != "constant")
            for c in columns
        )
        is_sparse = total > MIN_SPARSE_FEATURES and nonzero < MAX_SPARSE_SHARE * total
        empty = tuple(name for name, column in summaries.items() if column.kind == "empty")
        return cls(columns, roles, "sparse" if is_sparse else "dense", empty)

    def __repr__(self) -> str:
        return f"Encoding({len(self.columns)} columns → {len(self.names)} features)"

    @property
    def names(self) -> list[str]:
        """Names of the D features: `column`, or `column=category`."""
        return [name for column in self.columns for name in column.names]

    @property
    def blocks(self) -> dict[str, list[int]]:
        """Column name → positions of its features among the D features."""
        position = count()
        return {c.name: [next(position) for _ in c.names] for c in self.columns}

    @property
    def sources(self) -> list[int]:
        """Number of the column of each of the D features."""
        return [number for number, column in enumerate(self.columns) for _ in column.names]

    def notes(self) -> list[str]:
        """Describe in lines of text how the columns were encoded."""
        lines = [
            f"text column '{c.name}' was encoded as {len(c.categories):,} categories "
            f"({listed(c.categories)})" + f"; {c.empty:,} cells are empty" * (c.empty > 0)
            for c in self.columns
            if c.kind == "category"
        ]
        texts = {
            "number": "columns standardised to mean 0 and standard deviation 1",
            "date": "columns with dates, converted to seconds and standardised",
            "constant": "columns with the same value for all nodes outside the test set, set to 0",
        }
        named = {text: [c.name for c in self.columns if c.kind == k] for k, text in texts.items()}
        named["empty columns, left out"] = list(self.left_out)
        return lines + [f"{text}: {listed(names)}" for text, names in named.items() if names]

    def to_json(self) -> dict[str, Any]:
        """Return the content of a JSON file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Encoding:
        """Return the encoding from the output of `to_json`."""
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_python(content)
        except ValidationError as error:
            entry = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise CanetError(
                f"the encoding of the features has an invalid entry{' ' * bool(entry)}"
                f"{entry[:80]}: restore the file, or fit the model again"
            ) from error

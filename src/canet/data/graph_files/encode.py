"""Compute the features x from the columns of a table with an encoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.graph_files.encoding import ColumnEncoding, Encoding
from canet.data.graph_files.summary import (
    ColumnSummary,
    check_finite,
    column_blocks,
    non_number_hint,
    number_matrix,
)
from canet.data.graph_files.values import ArrowColumn, as_text, raise_error
from canet.errors import listed
from canet.util.memory import check_memory
from canet.util.sparse import from_scipy

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
            hint = non_number_hint(table[now.name]) if now.kind == "text" else ""
            raise_error(
                f"column '{now.name}' of '{path}' contains {WORDS[now.kind]}{hint}, but in "
                f"training it contained {WORDS[column.kind]}: convert the column"
            )
    check_finite((summaries[column.name] for column in numeric), path, raise_error)


@dataclass
class Differences:
    """Cells that did not occur in training, described by column."""

    filled: list[str] = field(default_factory=list)  # empty cells of columns without empty cells
    not_binary: list[str] = field(default_factory=list)
    new_categories: list[str] = field(default_factory=list)

    def lines(self, path: Path, fill: str) -> list[str]:
        """Return one warning for each kind of difference."""
        texts = {
            f"empty cells in columns without empty cells in training, filled with the {fill} of "
            "training": self.filled,
            "numbers other than 0 and 1 in columns that had only 0 and 1 in training": (
                self.not_binary
            ),
            "categories that did not occur in training and are treated as empty": (
                self.new_categories
            ),
        }
        return [f"'{path}' has {text}: {listed(names)}" for text, names in texts.items() if names]


def encode(encoding: Encoding, table: pa.Table, path: Path) -> tuple[Tensor, list[str]]:
    """Return features $[N, D]$, dense or sparse CSR, of a validated table, and warnings."""
    differences = Differences()
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
    return x, differences.lines(path, encoding.fill.replace("_", " "))


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
                differences.filled.append(f"'{column.name}' ({np.count_nonzero(empty):,})")
            cells[empty] = column.mean if column.fill is None else column.fill
        elif column.kind == "indicator" and not ((cells == 0) | (cells == 1)).all():
            differences.not_binary.append(f"'{column.name}' (up to {np.abs(cells).max():g})")
    values -= [column.mean for column in columns]
    values /= [column.std for column in columns]
    return values


def _one_hot(column: ColumnEncoding, text: ArrowColumn, differences: Differences) -> sp.csr_matrix:
    codes = pc.index_in(text, value_set=pa.array(column.categories, pa.string()))
    unknown = text.filter(pc.and_(pc.is_null(codes), pc.is_valid(text)))
    if len(unknown):
        example = unknown[0].as_py()[:40]
        differences.new_categories.append(
            f"'{column.name}' ({len(unknown):,}, such as {example!r})"
        )
    starts = np.concatenate([[0], np.cumsum(pc.is_valid(codes).to_numpy())])
    known = codes.drop_null().to_numpy()
    shape = (len(codes), len(column.categories))
    return sp.csr_matrix((np.ones(len(known), dtype=np.float32), known, starts), shape)

"""The columns of a table → the features x that an encoding makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    check_complete,
    column_blocks,
    number_matrix,
    stray_hint,
)
from canet.data.graph_files.values import Column, as_text, raise_error
from canet.util.memory import check_memory
from canet.util.sparse import from_scipy

Warn = Callable[[str], None]
FROM = {"number": {"number"}, "date": {"date"}, "indicator": {"number", "boolean"}}
"""What a column of a later graph may contain; a category may be anything."""


def check_fits(
    encoding: Encoding, found: dict[str, ColumnSummary], path: Path, table: pa.Table
) -> None:
    """Refuse columns of a later graph that contain something else than those of the encoding."""
    numeric = [column for column in encoding.columns if column.kind in FROM]
    for column in numeric:
        now = found[column.name]
        if now.kind not in {"empty", *FROM[column.kind]}:
            hint = stray_hint(table[now.name]) if now.kind == "text" else ""
            raise_error(
                f"'{path}' has {now.kind} in column '{now.name}'{hint}, which was a column of kind "
                f"{column.kind} in training: convert it"
            )
    check_complete((found[column.name] for column in numeric), path, raise_error)


def encode(encoding: Encoding, table: pa.Table, path: Path) -> tuple[Tensor, list[str]]:
    """Features $[N, D]$, dense or sparse CSR, of a table that was checked, and warnings."""
    warnings: list[str] = []
    parts = _parts(encoding, table, lambda line: warnings.append(f"'{path}' has {line}"))
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
    return x, warnings


def _parts(encoding: Encoding, table: pa.Table, warn: Warn) -> Iterator[tuple[np.ndarray, Any]]:
    """Places $[n]$ among the features, and these features $[N, n]$, some columns at a time."""
    blocks = encoding.blocks
    numeric = {column.name: column for column in encoding.columns if column.kind in FROM}
    for names in column_blocks(list(numeric), table.num_rows):
        places = np.concatenate([blocks[name] for name in names])
        yield places, _numbers([numeric[name] for name in names], table, warn)
    for column in encoding.columns:
        places = np.array(blocks[column.name])
        if column.kind == "constant":
            yield places, sp.csr_matrix((table.num_rows, 1))
        elif column.kind == "category":
            yield places, _one_hot(column, as_text(table[column.name]), warn)


def _numbers(columns: list[ColumnEncoding], table: pa.Table, warn: Warn) -> np.ndarray:
    values = number_matrix(table, [column.name for column in columns])
    for column, cells in zip(columns, values.T, strict=True):
        if column.kind == "indicator" and not ((cells == 0) | (cells == 1)).all():
            largest = np.abs(cells).max()
            warn(f"{largest:g} in column '{column.name}', which was 0 or 1 in training")
    values -= [column.mean for column in columns]
    values /= [column.std for column in columns]
    return values


def _one_hot(column: ColumnEncoding, text: Column, warn: Warn) -> sp.csr_matrix:
    codes = pc.index_in(text, value_set=pa.array(column.categories, pa.string()))
    unknown = text.filter(pc.and_(pc.is_null(codes), pc.is_valid(text)))
    if len(unknown):
        warn(
            f"{len(unknown):,} cell{'s' * (len(unknown) > 1)} in column '{column.name}' with "
            f"categories that training did not have, such as {unknown[0].as_py()[:40]!r}: they "
            "count as none"
        )
    starts = np.concatenate([[0], np.cumsum(pc.is_valid(codes).to_numpy())])
    known = codes.drop_null().to_numpy()
    shape = (len(codes), len(column.categories))
    return sp.csr_matrix((np.ones(len(known), dtype=np.float32), known, starts), shape)

"""The columns of a table → the features x that an encoding makes of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.graph_files.cells import as_booleans, as_numbers, as_seconds, as_text
from canet.data.graph_files.chunks import Chunk, Table, check_memory
from canet.data.graph_files.columns import ColumnEncoding, Encoding
from canet.util.sparse import from_scipy


def encode(encoding: Encoding, table: Table, rows: int) -> tuple[Tensor, list[str]]:
    """Features $[N, D]$, dense or sparse CSR, of a table that was checked, and what to warn of."""
    encoder = _Encoder(encoding)
    used = [column.name for column in encoding.columns if column.kind != "constant"]
    width = len(encoding.names)
    if encoding.layout == "sparse":
        parts = [encoder.sparse(chunk) for chunk in table.chunks(used)]
        x = from_scipy(sp.vstack(parts, format="csr"))
    else:
        check_memory(rows * width * 4, f"'{table.path}' with {width:,} features")
        x = torch.zeros(rows, width)
        start = 0
        for chunk in table.chunks(used):
            stop = start + len(chunk[used[0]])
            encoder.fill(x.numpy()[start:stop], chunk)
            start = stop
    return x, encoder.warnings(table)


class _Encoder:
    """Makes features of chunks, and counts what the encoding does not know."""

    def __init__(self, encoding: Encoding) -> None:
        blocks = encoding.blocks
        self._columns = [(blocks[c.name][0], c) for c in encoding.columns if c.kind != "constant"]
        self._width = len(encoding.names)
        self._codes = {
            column.name: {category: i for i, category in enumerate(column.categories)} | {"": -2}
            for column in encoding.columns
        }
        self._unknown: dict[str, Counter[str]] = {}
        self._largest: dict[str, float] = {}

    def fill(self, block: np.ndarray, chunk: Chunk) -> None:
        """Write the features of a chunk into zeros $[n, D]$."""
        for start, column in self._columns:
            rows, offsets, values = self._entries(column, chunk[column.name])
            block[rows, start + offsets] = values

    def sparse(self, chunk: Chunk) -> sp.csr_matrix:
        """The features $[n, D]$ of a chunk."""
        parts = []
        for start, column in self._columns:
            rows, offsets, values = self._entries(column, chunk[column.name])
            parts.append((rows, start + offsets, values.astype(np.float32)))
        rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        shape = (len(next(iter(chunk.values()))), self._width)
        return sp.csr_matrix((values, (rows, columns)), shape=shape)

    def warnings(self, table: Table) -> list[str]:
        """What the encoding did not know, a line each."""
        lines = []
        for name, counts in self._unknown.items():
            cells = "cell" if counts.total() == 1 else "cells"
            lines.append(
                f"'{table.path}' has {counts.total():,} {cells} in column '{name}' with categories "
                f"that training did not have, such as {next(iter(counts))[:40]!r}: they count as "
                "none"
            )
        for name, value in self._largest.items():
            lines.append(
                f"'{table.path}' has {value:g} in column '{name}', which was 0 or 1 in training"
            )
        return lines

    def _entries(
        self, column: ColumnEncoding, cells: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, offsets within the column's features, and values of all that is not zero."""
        if column.kind == "category":
            codes = self._categories(column.name, as_text(cells))
            rows = np.flatnonzero(codes >= 0)
            return rows, codes[rows], np.ones(len(rows))
        values = self._numbers(column, cells)
        rows = np.flatnonzero(values)
        return rows, np.zeros(len(rows), dtype=np.int64), values[rows]

    def _categories(self, name: str, texts: np.ndarray) -> np.ndarray:
        """The number $[n]$ of each category; negative where there is none."""
        codes = self._codes[name]
        numbers = np.array([codes.get(text, -1) for text in texts.tolist()], dtype=np.int64)
        unknown = texts[numbers == -1].tolist()
        if unknown:
            self._unknown.setdefault(name, Counter()).update(unknown)
        return numbers

    def _numbers(self, column: ColumnEncoding, cells: np.ndarray) -> np.ndarray:
        """Values $[n]$ of a column that holds numbers, booleans or dates."""
        if column.kind == "date":
            values = as_seconds(cells)
        else:
            values = as_numbers(cells)
            values = as_booleans(cells) if values is None else values
        assert values is not None  # the survey found nothing else
        if column.kind != "indicator":
            return (values - column.mean) / column.std
        largest = np.abs(values).max(initial=0)
        if not ((values == 0) | (values == 1)).all():
            self._largest[column.name] = max(largest, self._largest.get(column.name, 0))
        return values

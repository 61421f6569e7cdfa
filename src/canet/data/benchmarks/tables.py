"""Read tables of numbers from CSV files, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from canet.errors import CanetError


def read_table(path: Path, columns: int, dtype: DTypeLike, header: bool = False) -> np.ndarray:
    """Return the numbers $[rows, columns]$ of a CSV file; an invalid file is a `CanetError`."""
    try:
        table = np.loadtxt(path, dtype=dtype, delimiter=",", skiprows=int(header), ndmin=2)
    except (ValueError, EOFError, OverflowError, zlib.error, gzip.BadGzipFile) as error:
        raise CanetError(
            f"'{path}' cannot be read ({error}): replace it by the published file"
        ) from error
    if table.shape[1] != columns:
        raise CanetError(
            f"'{path}' has {table.shape[1]} columns instead of {columns}: replace it by the "
            "published file"
        )
    return table

"""Tables of numbers in CSV files, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from canet.errors import CanetError


def read_table(path: Path, columns: int, dtype: DTypeLike, header: bool = False) -> np.ndarray:
    """The numbers $[rows, columns]$ of a CSV file, or one line that says what is wrong with it."""
    try:
        table = np.loadtxt(path, dtype=dtype, delimiter=",", skiprows=int(header), ndmin=2)
    except (ValueError, EOFError, OverflowError, zlib.error, gzip.BadGzipFile) as error:
        raise CanetError(f"'{path}' cannot be read ({error}): replace it") from error
    if table.shape[1] != columns:
        raise CanetError(f"'{path}' has {table.shape[1]} columns, not {columns}: replace it")
    return table

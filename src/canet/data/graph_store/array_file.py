"""`.npy` files that are written piece by piece."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from canet.util.files import sha256

HEADER_BYTES = 128
"""Length of the header of each file; it is written last, when the shape is known."""


class StoredArray(NamedTuple):
    """An array in the index: where its numbers are in the file, and the checksum of the file."""

    dtype: str
    shape: Sequence[int]
    offset: int  # of the numbers in the file
    bytes: int  # of the file
    sha256: str  # of the file


class ArrayFile:
    """A `.npy` file whose length is known only at the end."""

    def __init__(self, path: Path, file: FileIO, dtype: np.dtype) -> None:
        self.dtype, self._path, self._file = dtype, path, file
        file.write(bytes(HEADER_BYTES))

    def append(self, values: object) -> None:
        write_array(self._file, np.ascontiguousarray(values, dtype=self.dtype))

    def finish(self, shape: tuple[int, ...]) -> StoredArray:
        """Write the header, close the file, and return its entry in the index."""
        self._file.seek(0)
        self._file.write(_header(self.dtype.str, shape))
        os.fsync(self._file.fileno())
        self._file.close()
        size = self._path.stat().st_size
        return StoredArray(self.dtype.str, shape, HEADER_BYTES, size, sha256(self._path))


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of a `.npy` file, version 1.0, with `HEADER_BYTES` bytes."""
    start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    return (start + text).ljust(HEADER_BYTES - 1) + b"\n"


def write_array(file: FileIO, array: np.ndarray) -> None:
    """Write the content of a contiguous array to a file without a buffer."""
    content = array.reshape(-1).view(np.uint8).data
    while content:
        content = content[file.write(content) :]

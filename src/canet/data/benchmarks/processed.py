"""Read raw tables of numbers, and keep processed copies in the cache, which are faster to read."""

import gzip
import io
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from canet.errors import CanetError
from canet.util.files import cache_dir, digest_of, sha256, write_bytes

Arrays = dict[str, np.ndarray]


def processed(name: str, identity: str, build: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of `build`, from the cache if it contains a valid copy.

    The file name of a copy ends with its SHA-256. A copy with another checksum is built again.

    Args:
        name: Beginning of the file name, such as `cora`.
        identity: Text with everything that the result depends on: contents of raw files, version
            of the reader, parameters. Each identity has its own file.
        build: Function that returns the arrays (no object arrays).
    """
    key = digest_of(identity.encode())[:16]
    folder = cache_dir() / "processed"
    for path in folder.glob(f"{name}-{key}-*.npz"):
        if sha256(path) == path.stem.rpartition("-")[2]:
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
    built = build()
    content = io.BytesIO()
    np.savez(content, **built)  # type: ignore[arg-type]
    copy = content.getvalue()
    with suppress(OSError):  # without a writable cache, the arrays are built each time
        write_bytes(folder / f"{name}-{key}-{digest_of(copy)}.npz", copy)
    return built


def read_table(path: Path, columns: int, dtype: DTypeLike, header: bool = False) -> np.ndarray:
    """Return the numbers $[rows, columns]$ of a CSV file, plain or gzipped."""
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

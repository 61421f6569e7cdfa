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
    """Return the arrays of `build` (no object arrays), from the cache if it has a valid copy.

    The file name of a copy begins with `name` and ends with its SHA-256. A copy with another
    checksum is built again. `identity` is a text with everything that the arrays depend on:
    contents of raw files, version of the reader, parameters. Each identity has its own file.
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


def read_table(
    path: Path, columns: int, dtype: DTypeLike, header: bool = False, rows: int | None = None
) -> np.ndarray:
    """Return the numbers $[rows, columns]$ of a CSV file, plain or gzipped."""
    try:
        table = np.loadtxt(path, dtype=dtype, delimiter=",", skiprows=int(header), ndmin=2)
    except (ValueError, EOFError, OverflowError, zlib.error, gzip.BadGzipFile) as error:
        raise CanetError(
            f"'{path}' cannot be read ({error}): replace it by the published file"
        ) from error
    for kind, found, expected in (("columns", table.shape[1], columns), ("rows", len(table), rows)):
        if expected not in (None, found):
            raise CanetError(
                f"'{path}' has {found} {kind} instead of {expected}: replace it by the published "
                "file"
            )
    return table

"""Processed copies of raw files in the cache, which are faster to read."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress

import numpy as np

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

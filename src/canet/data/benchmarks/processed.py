"""Processed copies: what was parsed or computed from raw files once is read back quickly."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from canet.util.files import cache_dir, digest_of, sha256, write_bytes

Arrays = dict[str, np.ndarray]


def processed(name: str, identity: str, build: Callable[[], Arrays]) -> Arrays:
    """The arrays that `build` makes, from the cache where there is an intact copy.

    The name of a copy ends with its SHA-256. A copy that was changed is made again.

    Args:
        name: Start of the file name, such as `cora`.
        identity: All that the result depends on: contents of raw files, version of the reader,
            parameters. Another identity is another file.
        build: Makes the arrays (no object arrays).
    """
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    folder = cache_dir() / "processed"
    for path in folder.glob(f"{name}-{key}-*.npz"):
        if sha256(path) == path.stem.rpartition("-")[2]:
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
    built = build()
    content = io.BytesIO()
    np.savez(content, **built)  # type: ignore[arg-type]
    copy = content.getvalue()
    with suppress(OSError):  # a cache that cannot be written costs time, not the result
        write_bytes(folder / f"{name}-{key}-{digest_of(copy)}.npz", copy)
    return built

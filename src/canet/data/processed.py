"""Processed copies: what was once parsed or computed from raw files is read back in an instant."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable

import numpy as np

from canet.files import atomic_path, cache_dir

Arrays = dict[str, np.ndarray]


def processed(name: str, identity: str, build: Callable[[], Arrays]) -> Arrays:
    """The arrays that `build` makes, from the cache where an intact copy lies.

    Args:
        name: Start of the file name, such as `cora`.
        identity: All that the result depends on: contents of raw files, version of the reader,
            parameters. Another identity is another file.
        build: Makes the arrays (no object arrays).
    """
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    path = cache_dir() / "processed" / f"{name}-{key}.npz"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile):
        pass  # absent or damaged: made anew below
    built = build()
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as target:
            np.savez(target, **built)  # type: ignore[arg-type]
    except OSError:
        pass  # a cache that cannot be written costs time, not the result
    return built

"""Processed copies: what was once parsed or computed from raw files is read back in an instant."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from canet.util.files import atomic_path, cache_dir

Arrays = dict[str, np.ndarray]
DIGEST = "digest"
"""The array of a copy that holds the SHA-256 of the others."""


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
    kept = _read(path)
    if kept is not None:
        return kept
    built = build()
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as target:
            np.savez(target, **built, **{DIGEST: _digest(built)})  # type: ignore[arg-type]
    except OSError:
        pass  # a cache that cannot be written costs time, not the result
    return built


def _read(path: Path) -> Arrays | None:
    """The arrays of an intact copy; None where there is none."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = dict(archive)
        written = arrays.pop(DIGEST)
    except Exception:  # absent, or damaged, which fails in many ways
        return None
    return arrays if np.array_equal(written, _digest(arrays)) else None


def _digest(arrays: Arrays) -> np.ndarray:
    """SHA-256 of names, types, shapes and contents as bytes $[32]$, whatever their order."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return np.frombuffer(digest.digest(), dtype=np.uint8)

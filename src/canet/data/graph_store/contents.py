"""Read the arrays of a graph store: compare them with their checksums, and check their numbers.

A checksum shows that a file is the one that was written, not that its writer was honest: a number
out of range would read memory outside of an array.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from canet.data.graph_store.index import HEADER_BYTES, SPARSE, Index
from canet.errors import InputError
from canet.util.schema import checksum_mismatch

NUMBERS_AT_ONCE = 2**20


def check_array(index: Index, folder: Path, name: str) -> None:
    """Reject an array that has changed or has a number out of range; it is read once, in pieces."""
    path, stored, digest = folder / f"{name}.npy", index.arrays[name], hashlib.sha256()
    num_entries = index.arrays[SPARSE[2]].shape[0] if SPARSE[2] in index.arrays else 0
    ends = {"rowptr": index.num_edges, SPARSE[0]: num_entries}
    limits = {
        "neighbours": (0, index.num_nodes),
        SPARSE[1]: (0, index.num_features),
        "labels": (-1, len(index.classes)),
        "split": (-1, len(index.splits)),
        "environment": (-1, len(index.environments)),
    }
    expected, has_numbers = "", name in {*ends, *limits, "loops"}
    pieces = _pieces(path, stored.dtype if has_numbers else "u1", digest)
    if name in ends and not _are_pointers(pieces, ends[name]):
        expected = f"numbers that increase from 0 to {ends[name]:,}"
    if name in limits:
        low, high = limits[name]
        if not all(low <= piece.min() and piece.max() < high for piece in pieces):
            expected = f"numbers from {low} to {high - 1:,}"
    if name == "loops" and sum(map(np.count_nonzero, pieces)) != index.num_loops:
        expected = f"{index.num_loops:,} nonzero numbers"
    deque(pieces, maxlen=0)  # read the rest
    if digest.hexdigest() != stored.sha256:
        raise checksum_mismatch(path)
    if expected:
        raise InputError(f"'{path}' must contain {expected}: write the store again")


def _pieces(path: Path, dtype: str, digest: Any) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        digest.update(file.read(HEADER_BYTES))
        while len(piece := np.fromfile(file, dtype, NUMBERS_AT_ONCE)):
            digest.update(piece)
            yield piece


def _are_pointers(pieces: Iterator[np.ndarray], end: int) -> bool:
    """Whether numbers start at 0, never decrease, and end at `end`."""
    last: int | None = None
    for piece in pieces:
        is_next = piece[0] == 0 if last is None else piece[0] >= last
        if not is_next or (piece[1:] < piece[:-1]).any():
            return False
        last = piece[-1]
    return last == end

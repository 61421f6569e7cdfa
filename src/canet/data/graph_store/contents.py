"""Read the arrays of a graph store: compare them with their checksums, and check their numbers.

A checksum shows that a file is the one that was written, not that its writer was honest: a number
out of range would read memory outside of an array.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from canet.data.graph_store.index import HEADER_BYTES, SPARSE, Index
from canet.errors import InputError
from canet.util.schema import checksum_mismatch

NUMBERS_AT_ONCE = 2**20


def check_array(index: Index, folder: Path, name: str) -> None:
    """Reject an array that has changed or has a number out of range; it is read once, in pieces."""
    path, stored, digest = folder / f"{name}.npy", index.arrays[name], hashlib.sha256()
    num_entries = index.arrays[SPARSE[2]].shape[0] if SPARSE[2] in index.arrays else 0
    pointers = ("rowptr", SPARSE[0])
    limits = {
        pointers[0]: (0, index.num_edges),
        pointers[1]: (0, num_entries),
        "neighbours": (0, index.num_nodes - 1),
        SPARSE[1]: (0, index.num_features - 1),
        "labels": (-1, len(index.classes) - 1),
        "split": (-1, len(index.splits) - 1),
        "environment": (-1, len(index.environments) - 1),
    }
    dtype = stored.dtype if name in {*limits, "loops"} else "u1"
    low, high, increase, num_nonzero = np.inf, -np.inf, True, 0
    with path.open("rb") as file:
        digest.update(file.read(HEADER_BYTES))
        while len(piece := np.fromfile(file, dtype, NUMBERS_AT_ONCE)):
            digest.update(piece.data)
            if name in pointers:
                increase &= bool(piece[0] >= high and (piece[1:] >= piece[:-1]).all())
            if name in limits:
                low, high = min(low, piece.min()), max(high, piece.max())
            elif name == "loops":
                num_nonzero += int(np.count_nonzero(piece))
    if digest.hexdigest() != stored.sha256:
        raise checksum_mismatch(path)
    first, last = limits.get(name, (low, high))
    is_valid, expected = first <= low and high <= last, f"numbers from {first:,} to {last:,}"
    if name in pointers:
        is_valid, expected = increase and (low, high) == (first, last), f"increasing {expected}"
    elif name == "loops":
        is_valid, expected = num_nonzero == index.num_loops, f"{index.num_loops:,} nonzero numbers"
    if not is_valid:
        raise InputError(f"'{path}' must contain {expected}: write the store again")

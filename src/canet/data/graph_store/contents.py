"""Check the numbers in the arrays of a graph store that point into other arrays.

A checksum shows that a file is the one that was written, not that a writer was honest: a number
out of range would read memory outside of an array.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from canet.data.graph_store.index import SPARSE, Index
from canet.errors import InputError

NUMBERS_AT_ONCE = 2**22


def check_contents(index: Index, arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Reject arrays with a number out of range; `path` is the folder of the store."""
    entries = index.arrays[SPARSE[2]].shape[0] if SPARSE[2] in arrays else 0
    for name, end in (("rowptr", index.num_edges), (SPARSE[0], entries)):
        if name in arrays and not _are_pointers(arrays[name], end):
            raise _out_of_range(
                path, name, f"must increase from 0 to {end:,}, the number of entries"
            )
    limits = {
        "neighbours": (0, index.num_nodes),
        SPARSE[1]: (0, index.num_features),
        "labels": (-1, len(index.classes)),
        "split": (-1, len(index.splits)),
        "environment": (-1, len(index.environments)),
    }
    for name in limits.keys() & arrays.keys():
        low, high = limits[name]
        for start in range(0, len(arrays[name]), NUMBERS_AT_ONCE):
            piece = arrays[name][start : start + NUMBERS_AT_ONCE]
            if piece.min() < low or piece.max() >= high:
                raise _out_of_range(path, name, f"must contain numbers from {low} to {high - 1:,}")
    if "loops" in arrays and np.count_nonzero(arrays["loops"]) != index.num_loops:
        raise _out_of_range(path, "loops", f"must have {index.num_loops:,} nonzero numbers")


def _are_pointers(array: np.ndarray, end: int) -> bool:
    """Whether numbers start at 0, never decrease, and end at `end`."""
    for start in range(0, len(array), NUMBERS_AT_ONCE):
        piece = array[start : start + NUMBERS_AT_ONCE + 1]
        if (piece[1:] < piece[:-1]).any():
            return False
    return bool(array[0] == 0 and array[-1] == end)


def _out_of_range(path: Path, name: str, expected: str) -> InputError:
    return InputError(f"'{path / name}.npy' {expected}: write the store again")

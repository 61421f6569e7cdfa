"""Sort the edges of a graph on disk, in bounded memory.

An edge is one number, its key: the target in the high bits, the source in the low bits. Edges that
fit into memory are sorted and written as one run. In the end, one range of keys after the other is
read from all runs and sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

MAX_NODES = 2**32
"""With more nodes, a key would need more than 64 bits."""
BYTES_PER_EDGE = 48
"""Memory of one edge while a range is sorted: its key, weight and position, and copies."""
FILES = {"keys": np.uint64, "weights": np.float32}
"""Name of a temporary file → type of its numbers; the second is missing without weights."""


class SortedEdges(NamedTuple):
    """Distinct edges $[n]$, sorted by target, then by source; weights are None if there are none.

    They come after the edges of the part before, but the first target may be the last one there.
    """

    target: np.ndarray
    source: np.ndarray
    weight: np.ndarray | None


class EdgeSort:
    """Collects edges in any order, then returns them sorted and without duplicates.

    Of duplicate edges, the largest weight is kept.

    Args:
        folder: For temporary files, which take 8 bytes for each edge, 12 with weights.
        num_nodes: Number of nodes N, at most `MAX_NODES`.
        memory: Approximate number of bytes for edges in memory.
    """

    def __init__(self, folder: Path, num_nodes: int, memory: int) -> None:
        self.max_edges = memory // BYTES_PER_EDGE
        self._shift = np.uint64(max(1, (num_nodes - 1).bit_length()))
        self._paths = [folder / name for name in FILES]
        self._waiting: list[list[np.ndarray]] = []
        self._ends = [0]  # of the runs in the files

    def add(self, source: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> None:
        """Add integers $[n]$ with n ≤ `max_edges` // 2, and weights in all calls or in none."""
        key = target.astype(np.uint64)
        key <<= self._shift
        key |= source.astype(np.uint64, copy=False)
        self._waiting.append([key] if weight is None else [key, weight])
        if sum(len(edges[0]) for edges in self._waiting) >= self.max_edges // 2:
            self._write_run()

    def parts(self) -> Iterator[SortedEdges]:
        """Yield the sorted edges in parts, and remove the temporary files."""
        if self._waiting:
            self._write_run()
        mask = (np.uint64(1) << self._shift) - np.uint64(1)
        for ranges in zip(*map(pairwise, self._cuts()), strict=True):
            key, *weight = _distinct(self._read(start, end) for start, end in ranges)
            target, source = key >> self._shift, key & mask
            yield SortedEdges(
                target.view(np.int64), source.view(np.int64), weight[0] if weight else None
            )
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _write_run(self) -> None:
        edges = _distinct(self._waiting)
        self._waiting.clear()
        self._ends.append(self._ends[-1] + len(edges[0]))
        for path, values in zip(self._paths, edges, strict=False):
            with path.open("ab") as file:
                file.write(values.data)

    def _read(self, start: int, end: int) -> list[np.ndarray]:
        files = zip(self._paths, FILES.values(), strict=True)
        return [
            np.fromfile(path, kind, end - start, offset=start * np.dtype(kind).itemsize)
            for path, kind in files
            if path.exists()
        ]

    def _cuts(self) -> Iterator[list[int]]:
        """Yield the places in the files where each run is cut, for ranges that fit into memory.

        Every range has about `num_runs` sampled keys, and so at most `max_edges` keys.
        """
        runs = list(pairwise(self._ends))
        if not runs:
            return
        num_runs, keys = len(runs), np.memmap(self._paths[0], np.uint64, "r")
        step = max(1, self.max_edges // (2 * num_runs))
        sampled = np.sort(np.concatenate([keys[start:end:step] for start, end in runs]))
        limits = np.unique(sampled[num_runs::num_runs])
        for start, end in runs:
            inside = start + np.searchsorted(keys[start:end], limits)
            yield [start, *inside.tolist(), end]


def _distinct(pieces: Iterable[list[np.ndarray]]) -> list[np.ndarray]:
    """Sort keys, and possibly weights, without duplicates; the largest weight of a key is kept."""
    key, *weight = map(np.concatenate, zip(*pieces, strict=True))
    if not weight:
        key.sort()
        return [key[first_of_run(key)]]
    order = np.argsort(key)
    key = key[order]
    starts = np.flatnonzero(first_of_run(key))
    return [key[starts], np.maximum.reduceat(weight[0][order], starts)]


def first_of_run(values: np.ndarray) -> np.ndarray:
    """Whether each of the sorted values $[n]$ differs from the one before."""
    is_first = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    return is_first

"""Sort the edges of a graph on disk, in bounded memory.

An edge is one number, its key: the target in the high bits, the source in the low bits. Keys are
written to one file for each of many ranges of keys. A range that fits into memory is then read and
sorted. A larger one, such as the edges of a hub, is divided into smaller ranges first.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import numpy as np

MAX_NODES = 2**32  # with more nodes, a key would need more than 64 bits
NUM_RANGES = 256  # their numbers fit into one byte
BYTES_PER_EDGE = 48
"""Memory of one edge while a range is sorted: its key, weight and position, and copies."""
MIN_EDGES = 4  # smallest number of edges that are sorted at once; see `EdgeSort._divided`
KEY = np.dtype(np.uint64)
KEY_AND_WEIGHT = np.dtype([("key", np.uint64), ("weight", np.float32)])
"""The two types of an array of edges: without and with weights."""


class EdgeSort:
    """Collects edges in any order, then returns them sorted and without duplicates.

    Of duplicate edges, the largest weight is kept.

    Args:
        folder: For temporary files, which take 8 bytes for each edge, 12 with weights.
        num_nodes: Number of nodes N, at most `MAX_NODES`.
        memory: Approximate number of bytes for edges in memory.
    """

    def __init__(self, folder: Path, num_nodes: int, memory: int) -> None:
        self.max_edges = max(MIN_EDGES, memory // BYTES_PER_EDGE)
        self._folder, self._numbers = folder, count()
        self._shift = np.uint64(max(1, (num_nodes - 1).bit_length()))
        self._waiting: list[np.ndarray] = []
        self._ranges = self._divide(0, num_nodes << int(self._shift))

    def add(self, source: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> None:
        """Add integers $[n]$ with n ≤ `max_edges` // 2, and weights in all calls or in none."""
        key = target.astype(np.uint64)
        key <<= self._shift
        key |= source.astype(np.uint64, copy=False)
        edges: np.ndarray = key
        if weight is not None:
            edges = np.empty(len(key), KEY_AND_WEIGHT)
            edges["key"], edges["weight"] = key, weight
        self._waiting.append(edges)
        if sum(map(len, self._waiting)) >= self.max_edges // 2:
            self._write_waiting()

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        """Yield targets, sources and weights $[n]$ of the edges in parts, sorted in this order.

        The edges into one node can be divided between two parts.
        """
        self._write_waiting()
        mask = (np.uint64(1) << self._shift) - np.uint64(1)
        for edges in self._sorted(self._ranges):
            key = _keys(edges)
            weight = None if edges.dtype == KEY else edges["weight"]
            target, source = key >> self._shift, key & mask
            yield target.view(np.int64), source.view(np.int64), weight

    def _write_waiting(self) -> None:
        if self._waiting:
            edges = np.concatenate(self._waiting)
            self._waiting.clear()
            _write(edges, self._ranges)

    def _divide(self, low: int, high: int) -> "list[_Range]":
        """Divide a range of keys into parts of equal width; the last part may be smaller."""
        width = -(-(high - low) // NUM_RANGES)
        return [
            _Range(start, min(start + width, high), f"{self._folder}/edges-{next(self._numbers)}")
            for start in range(low, high, width)
        ]

    def _divided(self, wide: "_Range") -> "list[_Range]":
        """Move the edges of a range to parts of it.

        This ends even if all keys of a range are the same: each step removes the duplicates among
        at least `MIN_EDGES` / 2 edges.
        """
        parts = self._divide(wide.low, wide.high)
        step = self.max_edges // 2
        for start in range(0, wide.size, step):
            _write(_distinct(wide.read(start, step)), parts)
        os.unlink(wide.path)
        return parts

    def _sorted(self, ranges: "list[_Range]") -> Iterator[np.ndarray]:
        for part in ranges:
            if part.size > self.max_edges:
                yield from self._sorted(self._divided(part))
            elif part.size:
                edges = part.read(0, part.size)
                os.unlink(part.path)
                yield _distinct(edges)


@dataclass
class _Range:
    """The edges with keys from `low` to `high` - 1, in a file."""

    low: int
    high: int
    path: str  # not a Path, because Python would keep the names of thousands of files
    size: int = 0  # number of edges
    dtype: np.dtype = KEY

    def append(self, edges: np.ndarray) -> None:
        self.size += len(edges)
        self.dtype = edges.dtype
        with open(self.path, "ab") as file:
            file.write(edges.data)

    def read(self, start: int, size: int) -> np.ndarray:
        return np.fromfile(self.path, self.dtype, size, offset=self.dtype.itemsize * start)


def _keys(edges: np.ndarray) -> np.ndarray:
    """Return the keys $[n]$ of edges, in adjacent memory, which is faster."""
    return edges if edges.dtype == KEY else np.ascontiguousarray(edges["key"])


def _write(edges: np.ndarray, ranges: list[_Range]) -> None:
    """Write edges to the files of their ranges, which have the same width."""
    low, width = ranges[0].low, ranges[0].high - ranges[0].low
    number = ((_keys(edges) - np.uint64(low)) // np.uint64(width)).astype(np.uint8)
    edges = edges.take(np.argsort(number, kind="stable"))  # a fast radix sort
    limits = [0, *np.cumsum(np.bincount(number, minlength=len(ranges))).tolist()]
    for part, (start, end) in zip(ranges, pairwise(limits), strict=True):
        if end > start:
            part.append(edges[start:end])


def _distinct(edges: np.ndarray) -> np.ndarray:
    """Sort edges, and keep the largest weight of each; the array may be changed."""
    if edges.dtype == KEY:
        edges.sort()
        return edges[first_of_run(edges)]
    edges = edges.take(_order(_keys(edges)))
    starts = np.flatnonzero(first_of_run(_keys(edges)))
    largest = np.maximum.reduceat(edges["weight"], starts)
    edges = edges.take(starts)
    edges["weight"] = largest
    return edges


def _order(key: np.ndarray) -> np.ndarray:
    """Return the order $[n]$ of keys; sorting key and position as one number is much faster."""
    low, position_bits = key.min(), len(key).bit_length()
    if int(key.max() - low).bit_length() + position_bits > 64:
        return np.argsort(key)
    packed = (key - low) << np.uint64(position_bits)
    packed |= np.arange(len(key), dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << position_bits) - 1)
    return packed.view(np.int64)


def first_of_run(values: np.ndarray) -> np.ndarray:
    """Whether each of the sorted values $[n]$ differs from the one before."""
    is_first = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    return is_first

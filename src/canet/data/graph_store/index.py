"""The index of a graph store, and the check of its arrays against it."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from canet._version import __version__
from canet.data.graph_files.encoding import Encoding
from canet.errors import MAX_NAME_LENGTH, InputError, MissingFileError, VersionError
from canet.util.files import MAX_JSON_BYTES, read_regular
from canet.util.schema import CHECKSUM, checksum_mismatch, pack_json, parse

INDEX = "index.json"
FORMAT, VERSION = "canet graph store", 1
NUMBERS_AT_ONCE = 2**20
HEADER_BYTES = 128  # length of the header of each `.npy` file
SPARSE = ("feature_rowptr", "feature_columns", "feature_values")
TYPES = {
    "rowptr": "<i8",
    "neighbours": "<i[48]",
    "weight": "<f4",
    "loops": "<f4",
    "features": "<f[24]",
    **dict(zip(SPARSE, ("<i8", "<i4", "<f4"), strict=True)),
    "labels": "<i4",
    "split": r"\|i1",
    "time": "<f8",
    "environment": "<i4",
    "sample_weight": "<f4",
    "node_id": "<U[1-9][0-9]{0,6}",
}
"""Name of an array → pattern of its type."""
Name = bool | int | str


@dataclass(frozen=True)
class StoredArray:
    """An array in the index: where its numbers are in the file, and the checksum of the file."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    dtype: str
    shape: list[int]
    offset: int  # of the numbers in the file
    bytes: int  # of the file
    sha256: str  # of the file


@dataclass(frozen=True)
class Index:
    """The content of index.json."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    format: str
    version: int
    num_nodes: int
    num_edges: int
    num_loops: int
    num_features: int
    classes: list[Name]
    splits: list[str]
    environments: list[Name]
    encoding: Encoding | None
    arrays: dict[str, StoredArray]
    sha256: str  # of the other entries
    undirected: bool = False  # whether the reverse of each edge was added

    def invalid_entries(self) -> list[str]:
        """Return the entries that contradict the others."""
        n, e, d = self.num_nodes, self.num_edges, self.num_features
        names = self.arrays.keys()
        features = names & {"features", *SPARSE}
        valid = {
            "num_nodes": n > 0,
            "num_edges": e >= 0,
            "num_loops": self.num_loops >= 0 and ("loops" in names) == (self.num_loops > 0),
            "num_features": d >= 0 and bool(features) == (d > 0),
            "encoding": self.encoding is None or len(self.encoding.names) == d,
            "arrays": {"rowptr", "neighbours"} <= names
            and features in (set(), {"features"}, {*SPARSE}),
        }
        entries = self.arrays[SPARSE[2]].shape[:1] if SPARSE[2] in names else []
        shapes = {"neighbours": [e], "weight": [e], "features": [n, d]}
        shapes |= {"rowptr": [n + 1], SPARSE[0]: [n + 1]} | dict.fromkeys(SPARSE[1:], entries)
        for name, stored in self.arrays.items():
            valid[name] = (
                re.fullmatch(TYPES.get(name, "no array"), stored.dtype) is not None
                and stored.shape == shapes.get(name, [n])
                and min(stored.shape, default=-1) >= 0
                and stored.offset == HEADER_BYTES
            )
        return [name for name, is_valid in valid.items() if not is_valid]


def is_graph_store(path: Path) -> bool:
    """Whether a folder looks like a store: it has an index and at least one array."""
    return (path / INDEX).is_file() and any(path.glob("*.npy"))


def read_index(folder: Path) -> Index:
    """Return the index of a store, whose checksum and entries are verified."""
    path = folder / INDEX
    try:
        raw = read_regular(path, MAX_JSON_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(
            f"'{folder}' is not a graph store, because it has no {INDEX}: pass a folder that "
            "canet convert or GraphStoreWriter wrote"
        ) from error
    try:
        content = json.loads(raw)
        is_index = isinstance(content, dict) and CHECKSUM in content
        changed = is_index and pack_json(content) != raw
    except (ValueError, RecursionError) as error:
        raise checksum_mismatch(path) from error
    if not is_index:
        raise InputError(f"'{path}' is not the index of a graph store: pass another folder")
    if changed:
        raise checksum_mismatch(path)
    if (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise VersionError(
            f"'{folder}' was written by another version of canet and this version, {__version__}, "
            "cannot read it: use that version, or convert the graph again"
        )
    index = parse(Index, content, path)
    if wrong := index.invalid_entries():
        shown = " ".join(wrong[0].split())[:MAX_NAME_LENGTH]
        raise InputError(
            f"the entry '{shown}' of '{path}' contradicts the other entries: restore the file "
            "from a copy, or write the store again"
        )
    return index


def check_array(index: Index, folder: Path, name: str) -> None:
    """Reject an array that has changed or has a number out of range; it is read once, in pieces.

    A checksum shows that a file is the one that was written, not that its writer was honest: a
    number out of range would read memory outside of an array.
    """
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

"""The index of a graph store: sizes, names, and type, shape and SHA-256 of each array."""

from __future__ import annotations

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
HEADER_BYTES = 128
"""Length of the header of each `.npy` file."""
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
        lists = {"classes": self.classes, "environments": self.environments}
        valid = {
            "num_nodes": n > 0,
            "num_edges": e >= 0,
            "num_loops": self.num_loops >= 0 and ("loops" in names) == (self.num_loops > 0),
            "num_features": d >= 0 and bool(features) == (d > 0),
            "encoding": self.encoding is None or len(self.encoding.names) == d,
            "arrays": {"rowptr", "neighbours"} <= names
            and features in (set(), {"features"}, {*SPARSE}),
            **{k: not v or np.array(v).dtype.kind in "biU" for k, v in lists.items()},
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

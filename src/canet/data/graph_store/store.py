"""Open a graph store: a folder of `.npy` files with an index, which need not fit into memory.

index.json          sizes, names of classes and splits, and type, shape and SHA-256 of each array
rowptr.npy          int64 [N + 1]: the edges into node v have the numbers rowptr[v] to rowptr[v + 1]
neighbours.npy      int32 or int64 [E]: sources of the edges, sorted by target, then by source
weight.npy          float32 [E], if the edges have weights
loops.npy           float32 [N]: weight of each node's self-loop, 0 if it has none
features.npy        float32 or float16 [N, D]; or sparse features in three files:
feature_rowptr.npy, feature_columns.npy, feature_values.npy
labels.npy          int32 [N]: numbers in the list of classes, -1 if unknown
split.npy           int8 [N]: numbers in the list of splits, -1 if none
time.npy, environment.npy, sample_weight.npy, node_id.npy    further values of each node
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canet._version import __version__
from canet.data.digest import NUM_SUMS, DataDigest
from canet.data.graph_data import MASKS, GraphData
from canet.data.graph_files.encoding import Encoding
from canet.data.graph_files.values import MISSING_CLASS
from canet.data.labels import Labels
from canet.errors import (
    CanetError,
    ChecksumError,
    InputError,
    MissingFileError,
    VersionError,
    unknown_name,
)
from canet.util.files import MAX_JSON_BYTES, digest_of, read_regular, sha256
from canet.util.memory import check_memory
from canet.util.sparse import Csr, from_scipy, to_scipy

INDEX = "index.json"
FORMAT, VERSION = "canet graph store", 1
CHECKSUM = "sha256"
"""Entry of the index: the SHA-256 of the others."""
SPARSE = ("feature_rowptr", "feature_columns", "feature_values")


class StoredArray(NamedTuple):
    """An array in the index: where its numbers are in the file, and the checksum of the file."""

    dtype: str
    shape: Sequence[int]
    offset: int  # of the numbers in the file
    bytes: int  # of the file
    sha256: str  # of the file


class GraphStore:
    """A graph on disk, which need not fit into memory.

    Opening a store reads only its index. Arrays are memory-mapped when they are first used: the
    operating system reads the parts that are used.

    Args:
        path: Folder written by `GraphStoreWriter` or `canet convert`.

    Attributes:
        path: The folder.
        num_nodes: Number of nodes N.
        num_edges: Number of edges E, without self-loops.
        num_loops: Number of self-loops.
        num_features: Number of features D; 0 if the store has none.
        classes: Names of the classes, strings or integers.
        splits: Names of the splits; every name except `train` and `valid` is a test set.
        environments: Names of the environments, strings or integers.

    Raises:
        CanetError: The folder is not a store, a file is missing or incomplete, or the index has
            changed since it was written.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        index = _read_index(self.path)
        self.num_nodes: int = index["num_nodes"]
        self.num_edges: int = index["num_edges"]
        self.num_loops: int = index["num_loops"]
        self.num_features: int = index["num_features"]
        self.classes: list[Any] = index["classes"]
        self.splits: list[str] = index["splits"]
        self.environments: list[Any] = index["environments"]
        self._index = index
        self._arrays = {name: StoredArray(**entry) for name, entry in index["arrays"].items()}
        self._maps: dict[str, np.ndarray] = {}
        for name in self._arrays:
            self._check_file(name)

    def __repr__(self) -> str:
        return (
            f"GraphStore('{self.path}': {self.num_nodes:,} nodes, "
            f"{self.num_edges + self.num_loops:,} edges, {self.num_features:,} features)"
        )

    def __reduce__(self) -> tuple[type[GraphStore], tuple[Path]]:
        """Pickle the path only: another process opens the same files."""
        return GraphStore, (self.path,)

    def __contains__(self, name: str) -> bool:
        """Whether the store has an array of this name."""
        return name in self._arrays

    @property
    def size(self) -> int:
        """Number of bytes of all arrays."""
        return sum(stored.bytes for stored in self._arrays.values())

    @cached_property
    def encoding(self) -> Encoding | None:
        """Encoding of table columns as features; None if the features were numbers before."""
        content = self._index["encoding"]
        return None if content is None else Encoding.from_json(content)

    def array(self, name: str) -> np.ndarray:
        """Return an array by name as a memory map; changes to it are not written to the file."""
        if name not in self._arrays:
            raise unknown_name("array", name, self._arrays)
        if name not in self._maps:
            stored = self._arrays[name]
            self._maps[name] = np.memmap(
                self._file(name),
                np.dtype(stored.dtype),
                mode="c",  # torch warns about arrays that are read-only
                offset=stored.offset,
                shape=tuple(stored.shape),
            )
        return self._maps[name]

    @cached_property
    def x(self) -> Tensor:
        """Features $[N, D]$ as a memory map: dense float32 or float16, or sparse CSR float32."""
        if "features" in self:
            return torch.from_numpy(self.array("features"))
        if SPARSE[0] not in self:
            raise InputError(
                f"'{self.path}' has no features: write the store again, with add_features or x.npy"
            )
        rowptr, columns, values = (self.array(name) for name in SPARSE)
        if len(values) < 2**31:  # torch needs one type for both; the row pointers are smaller
            rowptr = rowptr.astype(np.int32)
        else:
            columns = columns.astype(np.int64)
        pointers, indices, entries = map(torch.from_numpy, (rowptr, columns, values))
        shape = (self.num_nodes, self.num_features)
        return torch.sparse_csr_tensor(pointers, indices, entries, shape, check_invariants=False)

    @cached_property
    def csr(self) -> Csr:
        """The edges into each node, as memory maps."""
        names = ("rowptr", "neighbours", "weight", "loops")
        arrays = (torch.from_numpy(self.array(n)) if n in self else None for n in names)
        return Csr(*arrays)  # type: ignore[arg-type]  # every store has the first two

    def nodes(self, split: str) -> Tensor:
        """Return the node ids (int64) of a split."""
        if split not in self.splits:
            raise unknown_name("split", split, self.splits)
        return torch.from_numpy(np.flatnonzero(self.array("split") == self.splits.index(split)))

    @cached_property
    def digest(self) -> DataDigest:
        """Digest of the data, from the checksums in the index."""
        features = self._digest(["features", *SPARSE])
        # Other features must not count as rounding errors: the sums differ, and the norm is 0.
        length = len(features) // NUM_SUMS
        parts = (features[i : i + length] for i in range(0, len(features), length))
        return DataDigest(
            graph=self._digest(["rowptr", "neighbours", "weight", "loops"]),
            labels=self._digest(
                ["labels", "environment", "sample_weight"], self.classes, self.environments
            ),
            splits=self._digest(["split", "time"], self.splits),
            features=features,
            feature_sums=(*(float(int(part, 16)) for part in parts), 0.0),
        )

    def open(self) -> GraphData:
        """Return the graph with features and edges on disk, as memory maps.

        It has `csr` instead of `edge_index`; `y`, `environment` and `split` are names and codes.
        """
        data = GraphData(x=self.x, csr=self.csr, store=self)
        data.node_id = self.array("node_id") if "node_id" in self else np.arange(self.num_nodes)
        if "labels" in self:
            data.y = Labels.of(self.classes, self.array("labels"))
        if "environment" in self:
            data.environment = Labels.of(self.environments, self.array("environment"))
        if "split" in self:
            data.split = Labels(np.array(self.splits), self.array("split"))
        for name in ("time", "sample_weight"):
            if name in self:
                data[name] = self.array(name)
        if self.encoding is not None:
            data.encoding = self.encoding
        return data

    def load(self) -> GraphData:
        """Return the whole graph in memory, as `canet.read_graph` does.

        The edges are sorted by target and source, and self-loops come last. All test sets are one
        `test_mask`.
        """
        self._check_memory()
        is_sparse = self.x.layout == torch.sparse_csr
        x = from_scipy(to_scipy(self.x)) if is_sparse else self.x.to(torch.float32, copy=True)
        data = GraphData(x=x, num_nodes=self.num_nodes)
        data.edge_index, weight = self._edges()
        if weight is not None:
            data.edge_weight = weight
        ids = np.array(self.array("node_id"), dtype=object) if "node_id" in self else None
        data.node_id = np.arange(self.num_nodes) if ids is None else ids
        if "labels" in self:
            data.y = _named(self.array("labels"), self.classes)
        if "environment" in self:
            data.environment = _named(self.array("environment"), self.environments)
        for name in ("time", "sample_weight"):
            if name in self:
                data[name] = np.array(self.array(name), dtype=np.float64)
        for split in self.splits:
            mask = MASKS.get(split, MASKS["test"])
            if mask not in data:
                data[mask] = torch.zeros(self.num_nodes, dtype=torch.bool)
            data[mask][self.nodes(split)] = True
        if self.encoding is not None:
            data.encoding = self.encoding
        return data

    def problems(self) -> list[str]:
        """Read all files, and return a message for each that differs from its checksum."""
        found = []
        for name in (None, *self._arrays):
            try:
                if name is None:
                    if _read_index(self.path) != self._index:
                        raise _mismatch(self.path / INDEX)
                    continue
                self._check_file(name)
                if sha256(self._file(name)) != self._arrays[name].sha256:
                    raise _mismatch(self._file(name))
            except CanetError as error:
                found.append(str(error))
            except OSError as error:
                found.append(f"cannot read '{error.filename}' ({error.strerror})")
        return found

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npy"

    def _check_file(self, name: str) -> None:
        """Reject an array whose file is missing or has another size than in the index."""
        path, stored = self._file(name), self._arrays[name]
        dtype = np.dtype(stored.dtype)
        content = int(np.prod(stored.shape, dtype=object)) * dtype.itemsize
        if dtype.hasobject or stored.offset + content != stored.bytes:
            raise InputError(f"'{self.path / INDEX}' has an invalid entry for '{name}'")
        try:
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise MissingFileError(
                f"'{path}' is missing: restore it from a copy, or write the store again"
            ) from error
        if size != stored.bytes:
            raise ChecksumError(
                f"'{path}' has {size:,} bytes, but had {stored.bytes:,} when it was written: "
                "restore it from a copy, or write the store again"
            )

    def _digest(self, names: Sequence[str], *about: Sequence[Any]) -> str:
        """Return a digest of the checksums of arrays, and of `about`."""
        sums = {name: self._arrays[name].sha256 for name in names if name in self}
        return digest_of(json.dumps([self.num_nodes, sums, about]).encode())

    def _check_memory(self) -> None:
        """Raise an error that names the alternatives if the graph does not fit into memory."""
        shapes = {name: stored.shape for name, stored in self._arrays.items()}
        numbers = int(np.prod(shapes.get("features", [0]), dtype=object))
        size = 4 * numbers + 12 * shapes.get(SPARSE[2], [0])[0]
        size += 28 * (self.num_edges + self.num_loops) + 40 * self.num_nodes
        try:
            check_memory(size, f"the graph in '{self.path}'")
        except InputError as error:
            raise InputError(
                f"{error}, or set batch_size and fanout, which leaves the graph on the disk"
            ) from error

    def _edges(self) -> tuple[Tensor, Tensor | None]:
        """Return `edge_index` $[2, E]$ with the self-loops, and the weights $[E]$ or None."""
        edges = np.empty((2, self.num_edges + self.num_loops), dtype=np.int64)
        degrees = np.diff(self.array("rowptr"))
        edges[0, : self.num_edges] = self.array("neighbours")
        edges[1, : self.num_edges] = np.repeat(np.arange(self.num_nodes), degrees)
        loops = self.array("loops") if "loops" in self else np.empty(0, np.float32)
        with_loop = np.flatnonzero(loops)
        edges[:, self.num_edges :] = with_loop
        weight = None
        if "weight" in self:
            weight = torch.from_numpy(np.concatenate([self.array("weight"), loops[with_loop]]))
        return torch.from_numpy(edges), weight


def is_graph_store(path: Path) -> bool:
    """Whether a folder looks like a store: it has an index and at least one array."""
    return (path / INDEX).is_file() and any(path.glob("*.npy"))


def pack_index(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of an index with its checksum; they are the same for the same content."""
    checksum = digest_of(json.dumps(content).encode())
    return (json.dumps({**content, CHECKSUM: checksum}, indent=2) + "\n").encode()


def _read_index(folder: Path) -> dict[str, Any]:
    """Return the content of an index without its checksum, which is verified."""
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
    except (ValueError, RecursionError) as error:
        raise _mismatch(path) from error
    if not isinstance(content, dict) or content.pop(CHECKSUM, None) is None:
        raise InputError(f"'{path}' is not the index of a graph store: pass another folder")
    if pack_index(content) != raw:
        raise _mismatch(path)
    if (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise VersionError(
            f"'{folder}' was written by another version of canet and this version, {__version__}, "
            "cannot read it: use that version, or convert the graph again"
        )
    return content


def _mismatch(path: Path) -> ChecksumError:
    return ChecksumError(
        f"checksum mismatch: '{path}' has changed since it was written; restore it from a copy, or "
        "write the store again"
    )


def _named(numbers: np.ndarray, names: Sequence[Any]) -> np.ndarray:
    """Return the name $[N]$ of each number, as `read_graph` returns classes.

    Unknown is -1 for integers and None for strings.
    """
    if all(type(name) is int for name in names):
        return np.array([*names, MISSING_CLASS], dtype=np.int64)[numbers]
    return np.array([*names, None], dtype=object)[numbers]

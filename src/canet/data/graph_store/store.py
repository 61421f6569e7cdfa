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

import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from canet.data.digest import DataDigest
from canet.data.graph_files.values import MISSING_CLASS
from canet.data.graph_store.index import SPARSE, check_array, read_index
from canet.data.labels import Labels
from canet.data.raw_graph import MASKS, RawGraph
from canet.errors import CanetError, ChecksumError, InputError, MissingFileError, unknown_name
from canet.util.files import as_path, digest_of
from canet.util.memory import check_memory
from canet.util.sparse import Csr, from_scipy, to_scipy

_checked: set[object] = set()
"""Stores that this process has compared with their checksums, with sizes and times of the files."""


class GraphStore:
    """A graph on disk, which need not fit into memory.

    `GraphStore(path)` reads only the index. Arrays are memory-mapped when they are first used: the
    operating system reads the parts that are used. `open` and `load`, and every command, first read
    all files once and compare them with their checksums; `x`, `csr` and `array` do not.

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
        encoding: Encoding of table columns as features; None if the features were numbers before.
        undirected: Whether the reverse of each edge was added.

    Raises:
        CanetError: The folder is not a store, a file is missing or incomplete, or the index has
            changed since it was written.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = as_path(path)
        self._index = index = read_index(self.path)
        self.num_nodes, self.num_edges = index.num_nodes, index.num_edges
        self.num_loops, self.num_features = index.num_loops, index.num_features
        self.classes, self.splits = index.classes, index.splits
        self.environments, self.encoding = index.environments, index.encoding
        self.undirected = index.undirected
        self._arrays = index.arrays
        self._maps: dict[str, np.ndarray] = {}
        for name in self._arrays:
            self._check_file(name)

    def __repr__(self) -> str:
        return (
            f"GraphStore('{self.path}': {self.num_nodes:,} nodes, "
            f"{self.num_edges + self.num_loops:,} edges, {self.num_features:,} features)"
        )

    def __reduce__(self) -> "tuple[type[GraphStore], tuple[Path]]":
        """Pickle the path only: another process opens the same files."""
        return GraphStore, (self.path,)

    def __contains__(self, name: str) -> bool:
        """Whether the store has an array of this name."""
        return name in self._arrays

    @property
    def size(self) -> int:
        """Number of bytes of all arrays."""
        return sum(stored.bytes for stored in self._arrays.values())

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
        return DataDigest(
            graph=self._digest(["rowptr", "neighbours", "weight", "loops"]),
            labels=self._digest(
                ["labels", "environment", "sample_weight"], self.classes, self.environments
            ),
            splits=self._digest(["split", "time"], self.splits),
            features=self._digest(["features", *SPARSE]),
        )

    def open(self) -> RawGraph:
        """Return the graph with features and edges on disk, as memory maps.

        It has `csr` instead of `edge_index`; `y`, `environment` and `split` are names and codes.
        """
        self.check()
        data = RawGraph(x=self.x, csr=self.csr, store=self, undirected=self.undirected)
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

    def load(self) -> RawGraph:
        """Return the whole graph in memory, as `canet.read_graph` does.

        The edges are sorted by target and source, and self-loops come last. All test sets are one
        `test_mask`.
        """
        self._check_memory()
        columns = self.open().to_dict()
        for name in ("csr", "store", "split"):
            columns.pop(name, None)
        is_sparse = self.x.layout == torch.sparse_csr
        x = from_scipy(to_scipy(self.x)) if is_sparse else self.x.to(torch.float32, copy=True)
        data = RawGraph(**columns | {"x": x, "num_nodes": self.num_nodes})
        data.edge_index, weight = self._edges()
        if weight is not None:
            data.edge_weight = weight
        kinds = {"node_id": object, "time": np.float64, "sample_weight": np.float64}
        for name in kinds.keys() & self._arrays.keys():
            data[name] = np.array(data[name], dtype=kinds[name])
        for name in ("y", "environment"):
            if name in data:
                data[name] = _named(data[name])
        for split in self.splits:
            mask = MASKS.get(split, MASKS["test"])
            if mask not in data:
                data[mask] = torch.zeros(self.num_nodes, dtype=torch.bool)
            data[mask][self.nodes(split)] = True
        return data

    def check(self) -> None:
        """Read all arrays, and raise an error if one has changed or has a number out of range.

        `open` and `load` call this; files that this process has checked are not read again.
        """
        files = [self._check_file(name) for name in self._arrays]
        times = tuple((file.st_size, file.st_mtime_ns) for file in files)
        key = (self.path.absolute(), self._index.sha256, times)
        if key not in _checked:
            for name in self._arrays:
                check_array(self._index, self.path, name)
            _checked.add(key)

    def problems(self) -> list[str]:
        """Read all arrays, and return a message for each that differs from its checksum."""
        found: list[str] = []
        for name in self._arrays:
            try:
                self._check_file(name)
                check_array(self._index, self.path, name)
            except (CanetError, OSError) as error:
                found.append(str(error))
        return found

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npy"

    def _check_file(self, name: str) -> os.stat_result:
        """Reject an array whose file is missing or has another size than in the index."""
        path, stored = self._file(name), self._arrays[name]
        try:
            found = path.stat()
        except FileNotFoundError as error:
            raise MissingFileError(
                f"'{path}' is missing: restore it from a copy, or write the store again"
            ) from error
        numbers = int(np.prod(stored.shape, dtype=object)) * np.dtype(stored.dtype).itemsize
        if not found.st_size == stored.bytes == stored.offset + numbers:
            raise ChecksumError(
                f"'{path}' has {found.st_size:,} bytes, but had {stored.bytes:,} when it was "
                "written: restore it from a copy, or write the store again"
            )
        return found

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


def _named(labels: Labels) -> np.ndarray:
    """Return the name $[N]$ of each code; -1 (integers) or None (strings) if it is unknown."""
    if labels.names.dtype.kind in "Ub":
        return np.array([*labels.names.tolist(), None], dtype=object)[labels.codes]
    return np.array([*labels.names, MISSING_CLASS], dtype=np.int64)[labels.codes]

"""Write a graph store piece by piece, in bounded memory."""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
import torch
from filelock import FileLock
from torch import Tensor

from canet.data.arrays import as_array, as_column, as_tensor, dtype_name
from canet.data.checks import (
    check_disjoint,
    check_edge_weights,
    check_features,
    check_nodes,
    check_times,
)
from canet.data.graph_files.encoding import Encoding
from canet.data.graph_files.values import SPLITS
from canet.data.graph_store.index import FORMAT, HEADER_BYTES, INDEX, SPARSE, VERSION, StoredArray
from canet.data.graph_store.sorting import MAX_NODES, EdgeSort, first_of_run
from canet.data.labels import check_labels
from canet.data.raw_graph import Column, NodeSet
from canet.errors import InputError, check_integer, listed
from canet.util.files import as_path, sha256, temporary_folder, write_errors
from canet.util.locks import LOCK, remove_abandoned_folders
from canet.util.schema import pack_json

MIN_MEMORY = 2**12
BYTES_PER_FEATURE = 16  # memory of one feature while a piece is checked: the number and its copies


class ArrayFile:
    """A `.npy` file whose length is known only at the end."""

    def __init__(self, path: Path, file: BinaryIO, dtype: np.dtype) -> None:
        self.dtype, self._path, self._file = dtype, path, file
        file.write(bytes(HEADER_BYTES))

    def append(self, values: object) -> None:
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self._file.flush()  # a full disk is an error here

    def finish(self, shape: tuple[int, ...]) -> StoredArray:
        """Write the header with the shape, close the file, and return its entry in the index."""
        start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
        text = repr({"descr": self.dtype.str, "fortran_order": False, "shape": shape}).encode()
        self._file.seek(0)
        self._file.write((start + text).ljust(HEADER_BYTES - 1) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        size = self._path.stat().st_size
        return StoredArray(self.dtype.str, [*shape], HEADER_BYTES, size, sha256(self._path))


class GraphStoreWriter:
    """Writes a graph that need not fit into memory; use it in a `with` block.

    The store appears at `path` when the block ends. If the block fails, nothing remains. Edges are
    sorted on disk: this takes 8 bytes of temporary space for each edge, 12 with weights, and twice
    that with `undirected`. Of duplicate edges, the largest weight is kept. The order of edges makes
    no difference.

    Args:
        path: New folder for the store.
        num_nodes: Number of nodes N.
        undirected: Whether to add the reverse of each edge.
        memory: Largest number of bytes for edges and features in memory. Some arrays $[N]$ come in
            addition.
    """

    def __init__(
        self, path: Path | str, num_nodes: int, *, undirected: bool = False, memory: int = 2**29
    ) -> None:
        self.path = as_path(path)
        if self.path.exists() or self.path.is_symlink():
            raise InputError(f"'{path}' already exists: choose a new folder, or delete this one")
        self.num_nodes = check_integer("num_nodes", num_nodes, 1, MAX_NODES)
        self.memory = check_integer("memory", memory, MIN_MEMORY)
        self.undirected = undirected
        self._names: dict[str, list[Any]] = {"classes": [], "splits": [], "environments": []}
        self._encoding: Encoding | None = None
        self._arrays: dict[str, StoredArray] = {}
        self._features: list[ArrayFile] = []
        self._num_rows = self._num_features = 0
        self._feature_rowptr: list[np.ndarray] = [np.zeros(1, dtype=np.int64)]
        self._weighted: bool | None = None
        self._is_open = False

    def __enter__(self) -> Self:
        with write_errors(self.path):
            remove_abandoned_folders(self.path)
            self._folder = temporary_folder(self.path)
            self._lock = FileLock(self._folder / LOCK)
            self._lock.acquire()
        self._open_files = ExitStack()
        self._edges = EdgeSort(self._folder, self.num_nodes, self.memory)
        self._is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with write_errors(self.path), self._open_files:
                if kind is None:
                    self._finish()
        finally:
            self._is_open = False
            self._lock.release()
            shutil.rmtree(self._folder, ignore_errors=True)

    def add_edges(self, source: Column, target: Column, weight: Column | None = None) -> None:
        """Add edges $[n]$ from source to target, with weights ≥ 0 in all calls or in none."""
        self._check_open()
        arrays = [_integers(source, "source"), _integers(target, "target")]
        if weight is not None:
            arrays.append(as_array(weight, "weight"))
        lengths = [len(array) for array in arrays]
        if len(set(lengths)) > 1:
            raise InputError(
                f"source, target and weight have {', '.join(map(str, lengths))} entries: pass one "
                "of each for each edge"
            )
        if self._weighted not in (None, weight is not None):
            raise InputError("some edges have weights and some have none: pass weights for all")
        self._weighted = weight is not None
        step = self._edges.max_edges // 4  # with the reverse edges, half of max_edges
        for start in range(0, lengths[0], step):
            sources, targets, *rest = (array[start : start + step] for array in arrays)
            for name, nodes in (("source", sources), ("target", targets)):
                low, high = int(nodes.min()), int(nodes.max())
                if low < 0 or high >= self.num_nodes:
                    raise InputError(
                        f"{name} contains node {low if low < 0 else high}, but the graph has "
                        f"{self.num_nodes:,} nodes: nodes are numbered from 0"
                    )
            weights = check_edge_weights(rest[0], len(sources)).numpy() if rest else None
            with write_errors(self.path):
                self._edges.add(sources, targets, weights)
                if self.undirected:
                    self._edges.add(targets, sources, weights)

    def add_features(self, x: object) -> None:
        """Add the next rows of features: a matrix $[n, D]$, dense or sparse CSR.

        Dense float16 stays float16, other numbers become float32. All pieces must be of one kind.
        """
        is_sparse = sp.issparse(x) or (isinstance(x, Tensor) and x.layout != torch.strided)
        if is_sparse:
            self._add_rows(x)
            return
        is_half = getattr(x, "dtype", None) in (np.float16, torch.float16)
        rows = x.numpy(force=True) if isinstance(x, Tensor) and is_half else as_array(x, "x")
        width = rows.shape[1] if rows.ndim == 2 else 1
        step = max(1, self.memory // (BYTES_PER_FEATURE * max(1, width)))
        for start in range(0, len(rows), step):
            self._add_rows(rows[start : start + step], is_half)

    def _add_rows(self, rows: object, is_half: bool = False) -> None:
        """Check rows of features $[n, D]$ and write them, dense ones as float16 if `is_half`."""
        checked = check_features(rows)
        is_sparse = checked.layout == torch.sparse_csr
        dtype = "<f2" if is_half else "<f4"
        kind = f"{'sparse' if is_sparse else 'dense'} {np.dtype(dtype)}"
        with write_errors(self.path):
            if not self._features:
                types = {SPARSE[1]: "<i4", SPARSE[2]: "<f4"} if is_sparse else {"features": dtype}
                self._features = [self._open(*file) for file in types.items()]
                self._num_features, self._kind = checked.shape[1], kind
            self._check_rows(checked, kind)
            self._num_rows += checked.shape[0]
            if is_sparse:
                pointers = checked.crow_indices().numpy()
                self._feature_rowptr.append(pointers[1:] + self._feature_rowptr[-1][-1])
                self._features[0].append(checked.col_indices().numpy())
                self._features[1].append(checked.values().numpy())
            else:
                self._features[0].append(checked.numpy())

    def _check_rows(self, rows: Tensor, kind: str) -> None:
        """Reject rows of another width or kind than the first, and more rows than nodes."""
        if kind != self._kind:
            raise InputError(
                f"x is {kind}, but the rows before were {self._kind}: convert all to one kind"
            )
        if rows.shape[1] != self._num_features:
            raise InputError(
                f"x has {rows.shape[1]:,} columns, but the rows before had "
                f"{self._num_features:,}: all nodes need the same features"
            )
        if self._num_rows + rows.shape[0] > self.num_nodes:
            raise InputError(
                f"x has {self._num_rows + rows.shape[0]:,} rows in total, but the graph has "
                f"{self.num_nodes:,} nodes: pass one row for each node"
            )

    def set_labels(self, y: Column, classes: Sequence[Any] | None = None) -> None:
        """Set the label $[N]$ of each node: integers or strings; -1, NaN and None mean unknown.

        Args:
            y: The labels, or their numbers in `classes`, -1 if unknown.
            classes: Names of the classes, integers or strings; None: the distinct labels.
        """
        names, codes = check_labels(y, self.num_nodes)
        if classes is not None:
            if names.dtype.kind != "i" or not np.isin(names, np.arange(len(classes))).all():
                raise InputError(
                    f"y contains {listed(names.tolist())}, but with classes it must contain their "
                    f"numbers, 0 to {len(classes) - 1}, or -1"
                )
            codes = np.append(names, -1)[codes]
        self._names["classes"] = (names if classes is None else np.asarray(classes)).tolist()
        self._save("labels", codes, "<i4")

    def set_split(self, split: Column | Mapping[str, NodeSet]) -> None:
        """Set the splits: `train`, `valid`, and test sets, which can have any other name.

        Args:
            split: Name $[N]$ of each node's split, empty if it has none; or a dictionary from the
                name of a split to its node ids or mask. A split without nodes is left out.
        """
        if isinstance(split, Mapping):
            given = {n: check_nodes(nodes, self.num_nodes, n) for n, nodes in split.items()}
        else:
            words, codes = check_labels(split, self.num_nodes, "split")
            if len(words) and words.dtype.kind != "U":
                raise InputError(
                    f"split contains {dtype_name(words)}: pass names, such as train, valid or test"
                )
            parts = (torch.from_numpy(np.flatnonzero(codes == code)) for code in range(len(words)))
            given = dict(zip(map(str, words), parts, strict=True))
        sets: dict[str, Tensor] = {}
        for name, nodes in given.items():
            known = SPLITS.get(name.strip().lower(), name.strip())
            known = "valid" if known == "val" else known
            if nodes.numel() and known:
                sets[known] = torch.cat([sets.get(known, nodes[:0]), nodes])
        names = sorted(sets, key=lambda name: (name != "train", name != "valid", name))
        check_disjoint(sets, self.num_nodes)
        if len(names) > np.iinfo(np.int8).max:
            raise InputError(f"split has {len(names):,} names, but at most 127 are possible")
        numbers = np.full(self.num_nodes, -1, dtype=np.int8)
        for number, name in enumerate(names):
            numbers[sets[name].numpy()] = number
        self._names["splits"] = names
        self._save("split", numbers, "|i1")

    def set_time(self, time: Column) -> None:
        """Set the time $[N]$ of each node: numbers or dates."""
        self._save("time", check_times(time, self.num_nodes), "<f8")

    def set_environment(self, environment: Column) -> None:
        """Set the environment $[N]$ of each node: integers or strings; -1 and None mean unknown."""
        names, codes = check_labels(environment, self.num_nodes, "environment")
        self._names["environments"] = names.tolist()
        self._save("environment", codes, "<i4")

    def set_sample_weight(self, sample_weight: Column) -> None:
        """Set the weight $[N]$ of each node in training; NaN if it is not a training node."""
        stored = as_tensor(sample_weight, "sample_weight").float().numpy()
        weights = as_column(stored, "sample_weight", self.num_nodes, "entry for each node")
        if (weights < 0).any() or np.isinf(weights).any():
            raise InputError("sample_weight contains an invalid number: pass finite numbers ≥ 0")
        self._save("sample_weight", weights, "<f4")

    def set_node_id(self, node_id: Column) -> None:
        """Set the name $[N]$ of each node, all different."""
        names = as_array(node_id, "node_id").astype(str)
        names = as_column(names, "node_id", self.num_nodes, "entry for each node")
        repeated = len(names) - pc.count_distinct(pa.array(names)).as_py()
        if repeated:
            raise InputError(
                f"node_id contains {repeated:,} names more than once: give each node its own name"
            )
        self._save("node_id", names, names.dtype.newbyteorder("<").str)

    def set_encoding(self, encoding: Encoding) -> None:
        """Set the encoding of table columns as features, to encode later graphs in the same way."""
        self._encoding = encoding

    def _check_open(self) -> None:
        if not self._is_open:
            raise InputError(
                "GraphStoreWriter was used outside of its block: write `with "
                "GraphStoreWriter(...) as writer:` and add the graph inside"
            )

    def _open(self, name: str, dtype: str) -> ArrayFile:
        self._check_open()
        path = self._folder / f"{name}.npy"
        file = self._open_files.enter_context(path.open("wb"))
        return ArrayFile(path, file, np.dtype(dtype))

    def _save(self, name: str, values: np.ndarray, dtype: str) -> None:
        """Write a whole array."""
        with write_errors(self.path):
            file = self._open(name, dtype)
            file.append(values)
            self._arrays[name] = file.finish(values.shape)

    def _finish(self) -> None:
        if 0 < self._num_rows < self.num_nodes:
            raise InputError(
                f"x has {self._num_rows:,} rows, but the graph has {self.num_nodes:,} nodes: add "
                "the missing rows with add_features"
            )
        num_edges, num_loops = self._save_edges()
        if len(self._features) == 1:
            shape = (self.num_nodes, self._num_features)
            self._arrays["features"] = self._features[0].finish(shape)
        elif self._features:
            pointers = np.concatenate(self._feature_rowptr)
            self._save(SPARSE[0], pointers, "<i8")
            for name, file in zip(SPARSE[1:], self._features, strict=True):
                self._arrays[name] = file.finish((int(pointers[-1]),))
        index = {
            "format": FORMAT,
            "version": VERSION,
            "num_nodes": self.num_nodes,
            "num_edges": num_edges,
            "num_loops": num_loops,
            "num_features": self._num_features,
            "undirected": self.undirected,
            **self._names,
            "encoding": self._encoding and asdict(self._encoding),
            "arrays": {name: asdict(array) for name, array in sorted(self._arrays.items())},
        }
        with (self._folder / INDEX).open("wb") as written:
            written.write(pack_json(index))
            written.flush()
            os.fsync(written.fileno())
        self._lock.release()
        (self._folder / LOCK).unlink(missing_ok=True)
        try:
            self._folder.rename(self.path)
        except OSError as error:
            if not self.path.exists():
                raise
            raise InputError(
                f"'{self.path}' was created by another process while this store was written: "
                "choose a new folder, or delete this one"
            ) from error

    def _save_edges(self) -> tuple[int, int]:
        """Sort the edges, write them, and return the numbers of edges and self-loops."""
        rowptr = np.zeros(self.num_nodes + 1, dtype=np.int64)
        loops = np.zeros(self.num_nodes, dtype=np.float32)
        neighbours = self._open("neighbours", "<i4" if self.num_nodes < 2**31 else "<i8")
        weights = self._open("weight", "<f4") if self._weighted else None
        for target, source, weight in self._edges.parts():
            is_loop = source == target
            loops[target[is_loop]] = 1 if weight is None else weight[is_loop]
            target = target[~is_loop]
            starts = np.flatnonzero(first_of_run(target))
            rowptr[target[starts] + 1] += np.diff(starts, append=len(target))
            neighbours.append(source[~is_loop])
            if weights is not None and weight is not None:
                weights.append(weight[~is_loop])
        np.cumsum(rowptr, out=rowptr)
        shape, num_loops = (int(rowptr[-1]),), int(np.count_nonzero(loops))
        self._arrays["neighbours"] = neighbours.finish(shape)
        if weights is not None:
            self._arrays["weight"] = weights.finish(shape)
        if num_loops:
            self._save("loops", loops, "<f4")
        self._save("rowptr", rowptr, "<i8")
        return shape[0], num_loops


def _integers(nodes: Column, name: str) -> np.ndarray:
    """Return node ids as an array of integers $[n]$, without a copy."""
    array = as_array(nodes, name)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InputError(
            f"{name} contains {dtype_name(array)} of shape {list(array.shape)}: pass integers [n]"
        )
    return array

"""A graph as named arrays: a `.npz` file of numpy, or a `.pt` file with a PyG `Data`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from canet.data.arrays import as_array
from canet.data.checks import check_edges, check_features, check_nodes
from canet.data.graph_files.array_files import open_arrays
from canet.data.graph_files.cells import as_classes
from canet.data.graph_files.chunks import check_memory
from canet.data.graph_files.column_checks import Refuse, check_present, raise_error
from canet.data.graph_files.columns import Encoding, Roles
from canet.data.graph_files.parts import GraphParts, read_split
from canet.errors import CanetError, InputError, InputWarning, first_line, listed
from canet.util.files import atomic_path
from canet.util.sparse import to_scipy

MASKS = ("train_mask", "val_mask", "test_mask")
SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")
"""The parts of scipy's CSR matrix, for features that are mostly zero."""
USUAL_NAMES = {
    "id": ("id", "node_id"),
    "label": ("y",),
    "split": ("split",),
    "environment": ("environment",),
    "time": ("time",),
}
OTHERS = {"edge_index", "x", "batch", "num_nodes", "encoding", *MASKS, *SPARSE}


class ArrayGraph:
    """The arrays of a file, and which of them is what.

    Args:
        path: The file.
        asked: Names of arrays that have another name than usual.
    """

    def __init__(self, path: Path, asked: Roles) -> None:
        self.path = path
        self.arrays = open_arrays(path)
        self.roles = _resolve(asked, self.arrays, path)
        check_present(["edge_index"], self.arrays, path, "array")
        if not set(SPARSE) <= set(self.arrays):
            check_present(["x"], self.arrays, path, "array")

    def ignored(self) -> list[str]:
        """What is not used, a line each."""
        extra = [name for name in self.arrays if name not in {*OTHERS, *self.roles.names()}]
        return [f"'{self.path}': ignored arrays {listed(extra)}"] if extra else []

    def features(self) -> Any:
        """The features as they are stored: an array, a tensor, or scipy's matrix."""
        if "x" in self.arrays:
            return _bounded(self.arrays["x"], f"x of '{self.path}'")
        values, indices, indptr, shape = (self.arrays[name] for name in SPARSE)
        try:
            matrix = sp.csr_matrix((values, indices, indptr), shape=tuple(shape.tolist()))
            matrix.check_format(full_check=True)
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise InputError(
                f"'{self.path}': {', '.join(SPARSE)} are no CSR matrix ({first_line(error)}): "
                "write the parts of one of scipy's"
            ) from error
        check_memory(matrix.shape[1] * 8, f"a row of x of '{self.path}'")
        return matrix

    def encoding(self) -> Encoding | None:
        """How the features were made, where the file says so."""
        written = self.arrays.get("encoding")
        if not isinstance(written, np.ndarray) or written.dtype.kind != "U":
            return None
        try:
            return Encoding.from_json(json.loads(str(written)))
        except (ValueError, RecursionError, CanetError) as error:
            raise InputError(f"'{self.path}' has a damaged encoding: write it again") from error

    def parts(self, num_nodes: int, refuse: Refuse) -> GraphParts:
        """Edges, ids, labels and the like; what is refused is left out."""
        edges, roles = self._edges(num_nodes, refuse), self.roles
        ids = self._column(roles.id, refuse)
        if ids is None or ids.shape != (num_nodes,):
            if ids is not None:
                refuse(f"'{self.path}' has ids of shape {list(ids.shape)}, not [{num_nodes}]")
            ids = np.arange(num_nodes)
        parts = GraphParts(num_nodes, edges, ids)
        for name, held in (("y", roles.label), ("environment", roles.environment)):
            values = self._column(held, refuse)
            if values is not None:
                parts.columns[name] = _classes(values)
        times = self._column(roles.time, refuse)
        if times is not None and times.ndim == 1 and times.dtype.kind in "OM":
            cells = _texts(times) if times.dtype == object else times
            parts.add_time(cells, str(roles.time), self.path, refuse)
        elif times is not None:
            parts.columns["time"] = times
        graphs = self._column("batch", refuse)
        if graphs is not None:
            parts.columns["batch"] = graphs
        parts.masks = self._masks(num_nodes, refuse)
        return parts

    def _masks(self, num_nodes: int, refuse: Refuse) -> dict[str, np.ndarray]:
        if self.roles.split:
            cells = self._column(self.roles.split, refuse)
            if cells is not None and cells.shape == (num_nodes,) and cells.dtype == object:
                return read_split(_texts(cells), self.roles.split, self.path, refuse)
            refuse(
                f"'{self.path}' has no text in '{self.roles.split}': a split is train, valid, test"
            )
            return {}
        return {name: self._mask(name, num_nodes, refuse) for name in MASKS if name in self.arrays}

    def _mask(self, name: str, num_nodes: int, refuse: Refuse) -> np.ndarray:
        mask = np.zeros(num_nodes, dtype=bool)
        value = self._column(name, refuse)
        try:
            mask[check_nodes(value, num_nodes, name).numpy()] = True
        except InputError as error:
            refuse(f"'{self.path}': {error}")
        return mask

    def _column(self, name: str | None, refuse: Refuse) -> np.ndarray | None:
        """An array by name, strings as objects; None where there is none."""
        value = self.arrays.get(name) if name else None
        if value is None:
            return None
        try:
            array = as_array(_bounded(value, f"{name} of '{self.path}'"), f"'{self.path}': {name}")
        except InputError as error:
            refuse(str(error))
            return None
        if not array.ndim:
            refuse(f"'{self.path}' has a single value in {name}: give one a node")
            return None
        return array.astype(object) if array.dtype.kind == "U" else array

    def _edges(self, num_nodes: int, refuse: Refuse) -> np.ndarray:
        value = _bounded(self.arrays["edge_index"], f"edge_index of '{self.path}'")
        try:
            return check_edges(value, num_nodes).numpy()
        except InputError as error:
            refuse(f"'{self.path}': {error}")
        edges = self._column("edge_index", lambda _: None)
        if edges is None or edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
            return np.empty((2, 0), dtype=np.int64)
        return edges[:, ((edges >= 0) & (edges < num_nodes)).all(axis=0)].astype(np.int64)


def read_arrays(path: Path, asked: Roles, encoding: Encoding | None) -> Data:
    """The graph in a `.npz` or `.pt` file; its features must be those of `encoding`, if given."""
    graph = ArrayGraph(path, asked)
    own = graph.encoding()
    if encoding is not None and own != encoding:
        raise InputError(
            f"'{path}' holds features as numbers, and the model's were made of columns "
            f"({listed(c.name for c in encoding.columns)}): bring a folder of tables"
        )
    try:
        x = check_features(graph.features())
    except InputError as error:
        raise InputError(f"'{path}': {error}") from error
    parts = graph.parts(x.shape[0], raise_error)
    for line in graph.ignored():
        warnings.warn(line, InputWarning, stacklevel=3)
    return parts.with_features(x, own)


def write_npz(path: Path | str, data: Data) -> None:
    """Write a graph as a `.npz` file that `read_graph` reads; sparse features stay sparse."""
    arrays = {"edge_index": as_array(data.edge_index, "edge_index")}
    if isinstance(data.x, Tensor) and data.x.layout != torch.strided:
        matrix = to_scipy(check_features(data.x))
        parts = (matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape))
        arrays |= dict(zip(SPARSE, parts, strict=True))
    else:
        arrays["x"] = as_array(data.x, "x")
    names = {"id": "node_id"} | {n: n for n in ("y", "environment", "time", "batch", *MASKS)}
    for name, attribute in names.items():
        if attribute in data and data[attribute] is not None:
            arrays[name] = _plain(as_array(data[attribute], attribute))
    if "encoding" in data:
        arrays["encoding"] = np.array(json.dumps(data.encoding.to_json()))
    with atomic_path(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _resolve(asked: Roles, arrays: Mapping[str, Any], path: Path) -> Roles:
    """The arrays with a role: those asked for, else the usual names; masks go before a split."""
    names = {}
    for role, name in vars(asked).items():
        if name is not None:
            check_present([name], arrays, path, "array")
        elif role != "split" or not any(mask in arrays for mask in MASKS):
            name = next((usual for usual in USUAL_NAMES[role] if usual in arrays), None)
        names[role] = name
    return Roles(**names)


def _bounded(value: Any, what: str) -> Any:
    """The value, unless it is a tensor that repeats a few stored numbers beyond all memory."""
    if isinstance(value, Tensor) and value.layout == torch.strided:
        check_memory(value.numel() * value.element_size(), what)
    return value


def _classes(values: np.ndarray) -> np.ndarray:
    """Strings and whole numbers $[N]$ as a table has them; what else there is stays."""
    texts = values.dtype == object and all(isinstance(value, str) for value in values.flat)
    return (
        as_classes(values) if values.ndim == 1 and (texts or values.dtype.kind == "f") else values
    )


def _plain(values: np.ndarray) -> np.ndarray:
    """Without objects: strings, "" where there is none."""
    return _texts(values).astype(str) if values.dtype == object else values


def _texts(values: np.ndarray) -> np.ndarray:
    """Strings as objects, "" where there is none."""
    return np.array(["" if value is None else str(value) for value in values.flat], dtype=object)

"""Graphs as named arrays: a `.npz` file of numpy, or a `.pt` file with a PyG `Data`.

Code in a file is never run. A `.npz` file is read without pickle. A `.pt` file is read with
`weights_only=True` and may contain only tensors and PyG's `Data`.
"""

import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.arrays import as_array
from canet.data.checks import check_edge_weights, check_edges, check_features, check_nodes
from canet.data.graph_files.encoding import Encoding, ReadOptions, Roles
from canet.data.graph_files.summary import check_present
from canet.data.graph_files.values import (
    ProblemHandler,
    add_split,
    add_time,
    as_classes,
    raise_error,
)
from canet.data.raw_graph import MASKS, GraphObject, RawGraph
from canet.errors import InputError, VersionError, first_line, listed, warn_user
from canet.util.files import atomic_path, check_regular
from canet.util.memory import check_memory
from canet.util.schema import parse
from canet.util.sparse import to_scipy

SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")
"""Arrays of a scipy CSR matrix, for sparse features."""
DEFAULT_NAMES = {
    "id": ("id", "node_id"),
    "label": ("y",),
    "weight": ("edge_weight",),
    **{role: (role,) for role in ("split", "environment", "time", "sample_weight")},
}
OTHER_ARRAYS = {"edge_index", "x", "batch", "metric", "environments", "num_nodes", "encoding"}
OTHER_ARRAYS |= {*SPARSE, *MASKS.values()}


def array_roles(requested: ReadOptions, available: Collection[str], path: Path) -> Roles:
    """Return the names of the arrays of a graph; masks are used instead of `split` by default."""
    roles, earlier = requested.roles, requested.earlier
    if requested.decimal or requested.sep:
        raise InputError(f"'{path}' contains no text: leave out decimal and sep, which read tables")
    if roles.source is not None or roles.target is not None:
        raise InputError(
            f"'{path}' has no columns for the ends of edges: save them as edge_index [2, E]"
        )
    if (weight := roles.weight or earlier.weight) is not None:
        check_present([weight], available, path, "array")
    defaults = dict(DEFAULT_NAMES)
    if any(mask in available for mask in MASKS.values()):
        del defaults["split"]
    defaults |= {role: (name,) for role, name in asdict(earlier).items() if name is not None}
    return roles.resolve(available, defaults, path, "array")


class ArrayGraph:
    """The arrays of a `.npz` or `.pt` file and their roles."""

    def __init__(self, path: Path, requested: ReadOptions) -> None:
        self.path, self.has_dates = path, False
        self.arrays = open_arrays(path)
        self.without = requested.without
        self.roles = array_roles(requested, self.arrays, path)
        check_present(["edge_index"], self.arrays, path, "array")
        if not set(SPARSE) <= set(self.arrays):
            check_present(["x"], self.arrays, path, "array")

    def ignored(self, options: ReadOptions) -> list[str]:
        """Return a message about unused arrays, if the options report them."""
        used = {*OTHER_ARRAYS, *self.roles.names(), self.roles.weight}
        extra = [name for name in self.arrays if name not in used]
        is_new = options.reports(extra)
        return [f"'{self.path}': these arrays are ignored: {listed(extra)}"] if is_new else []

    def features(self) -> Any:
        """Return the stored features: an array, a tensor, or a scipy matrix."""
        if "x" in self.arrays:
            return self.arrays["x"]
        values, indices, indptr, shape = (self.arrays[name] for name in SPARSE)
        try:
            matrix = sp.csr_matrix((values, indices, indptr), shape=tuple(shape.tolist()))
            matrix.check_format(full_check=True)
            return matrix
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise InputError(
                f"the arrays {', '.join(SPARSE)} of '{self.path}' are not those of a "
                f"scipy.sparse.csr_matrix ({first_line(error)}): save them again"
            ) from error

    def encoding(self) -> Encoding | None:
        """Return the encoding of the features; None if the file does not contain it."""
        written = self.arrays.get("encoding")
        if not isinstance(written, np.ndarray) or written.dtype.kind != "U":
            return None
        try:
            return parse(Encoding, json.loads(str(written)), self.path)
        except (ValueError, RecursionError, VersionError) as error:
            raise InputError(
                f"the array 'encoding' of '{self.path}' is invalid ({first_line(error)}): write "
                "the file again, or remove this array from it"
            ) from error

    def graph(self, num_nodes: int, report_problem: ProblemHandler) -> RawGraph:
        """Return the graph without features; parts with a problem are left out."""
        roles, graph = self.roles, RawGraph(num_nodes=num_nodes)
        graph.edge_index = torch.from_numpy(self._edges(num_nodes, report_problem))
        if roles.weight is not None:
            try:
                stored, count = self.arrays[roles.weight], graph.edge_index.shape[1]
                graph.edge_weight = check_edge_weights(stored, count)
            except InputError as error:
                report_problem(f"'{self.path}': {error}")
        ids = self._column(roles.id, report_problem)
        if ids is not None and ids.shape != (num_nodes,):
            report_problem(
                f"'{self.path}' has node ids of shape {list(ids.shape)}, but x has {num_nodes:,} "
                "rows: save one id for each node"
            )
            ids = None
        graph.node_id = np.arange(num_nodes) if ids is None else ids
        for name, column in {
            "y": roles.label,
            "environment": roles.environment,
            "time": roles.time,
            "sample_weight": roles.sample_weight,
            "batch": "batch",
        }.items():
            if (values := self._column(column, report_problem)) is None:
                continue
            if name == "time" and values.ndim == 1 and values.dtype.kind in "OM":
                is_text = values.dtype == object
                times = _texts(values) if is_text else pa.array(values.astype("datetime64[us]"))
                self.has_dates = add_time(graph, times, str(column), self.path, report_problem)
            else:
                graph[name] = _classes(values) if name in ("y", "environment") else values
        self._add_masks(graph, num_nodes, report_problem)
        return graph

    def _add_masks(self, graph: RawGraph, num_nodes: int, report_problem: ProblemHandler) -> None:
        if self.roles.split:
            cells = self._column(self.roles.split, report_problem)
            if cells is not None and cells.shape == (num_nodes,) and cells.dtype == object:
                add_split(graph, _texts(cells), self.roles.split, self.path, report_problem)
            else:
                report_problem(
                    f"the array '{self.roles.split}' of '{self.path}' must contain 'train', "
                    "'valid', 'test' or an empty string for each node"
                )
            return
        for name in (name for name in MASKS.values() if name in self.arrays):
            graph[name] = torch.zeros(num_nodes, dtype=torch.bool)
            try:
                if (rows := self._column(name, report_problem)) is not None:
                    graph[name][check_nodes(rows, num_nodes, name)] = True
            except InputError as error:
                report_problem(f"'{self.path}': {error}")

    def _column(self, name: str | None, report_problem: ProblemHandler) -> np.ndarray | None:
        """Return an array by name, with strings as objects; None if it is missing."""
        value = self.arrays.get(name) if name else None
        if value is None:
            return None
        try:
            array = as_array(value, f"'{self.path}': {name}")
        except InputError as error:
            report_problem(str(error))
            return None
        return array.astype(object) if array.dtype.kind == "U" else array

    def _edges(self, num_nodes: int, report_problem: ProblemHandler) -> np.ndarray:
        try:
            return check_edges(self.arrays["edge_index"], num_nodes).numpy()
        except InputError as error:
            report_problem(f"'{self.path}': {error}")
        edges = self._column("edge_index", lambda _: None)
        if edges is None or edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
            return np.empty((2, 0), dtype=np.int64)
        return edges[:, ((edges >= 0) & (edges < num_nodes)).all(axis=0)].astype(np.int64)


def read_arrays(path: Path, requested: ReadOptions, encoding: Encoding | None) -> RawGraph:
    """Read the graph in a `.npz` or `.pt` file; its encoding must equal `encoding`, unless None."""
    arrays = ArrayGraph(path, requested)
    own = arrays.encoding()
    if encoding is not None and own != encoding:
        raise InputError(
            f"'{path}' contains a feature matrix, but the model was trained on the columns of a "
            f"table ({listed(c.name for c in encoding.columns)}): pass a folder with nodes.csv and "
            "edges.csv that has these columns"
        )
    try:
        x = check_features(arrays.features(), arrays.without)
    except InputError as error:
        raise InputError(f"'{path}': {error}") from error
    data = arrays.graph(x.shape[0], raise_error)
    data.x = x
    if arrays.without:
        data.left_out = arrays.without
    if own is not None:
        data.encoding = own
    for line in arrays.ignored(requested):
        warn_user(line)
    return data


def write_npz(path: Path | str, data: GraphObject) -> None:
    """Write a graph as a `.npz` file for `read_graph`; sparse features stay sparse."""
    arrays = {"edge_index": as_array(data.edge_index, "edge_index")}
    if isinstance(data.x, Tensor) and data.x.layout != torch.strided:
        matrix = to_scipy(check_features(data.x))
        parts = (matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape))
        arrays |= dict(zip(SPARSE, parts, strict=True))
    else:
        arrays["x"] = as_array(data.x, "x")
    same = ("edge_weight", "y", "environment", "time", "sample_weight", "batch", *MASKS.values())
    names = {"id": "node_id"} | {name: name for name in (*same, "metric", "environments")}
    for name, attribute in names.items():
        if attribute in data and data[attribute] is not None:
            values = as_array(data[attribute], attribute)
            if values.dtype == object:
                values = np.array(["" if v is None else str(v) for v in values], dtype=str)
            arrays[name] = values
    if "encoding" in data:
        arrays["encoding"] = np.array(json.dumps(asdict(data.encoding)))
    with atomic_path(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _classes(values: np.ndarray) -> np.ndarray:
    """Convert strings and integers $[N]$ as for a table; return other arrays unchanged."""
    if values.ndim != 1:
        return values
    if values.dtype == object and all(isinstance(value, str) for value in values):
        return as_classes(_texts(values))
    return as_classes(pa.array(values.astype(np.float64))) if values.dtype.kind == "f" else values


def _texts(values: np.ndarray) -> pa.Array:
    """Return strings; null for None and empty strings."""
    return pa.array([str(v) if v is not None and v != "" else None for v in values], pa.string())


def open_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of a `.npz` file, or the attributes of the `Data` in a `.pt`, by name."""
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:  # .npz and .pt files are zip archives
            size = sum(member.file_size for member in archive.infolist())
        check_memory(size, f"'{path}'")
        if path.suffix == ".npz":
            return _npz_arrays(path)
        arrays = _data_attributes(path)
        dense = [a for a in arrays.values() if isinstance(a, Tensor) and a.layout == torch.strided]
        check_memory(sum(a.numel() * a.element_size() for a in dense), f"'{path}'")  # expanded ones
        return arrays
    except InputError:
        raise
    except Exception as error:  # zipfile, numpy and torch raise many types for an invalid file
        raise InputError(
            f"'{path}' cannot be read ({first_line(error)}): save it again with numpy or torch"
        ) from error


def _npz_arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        arrays = {}
        for name in file.files:
            try:
                arrays[name] = file[name]
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
                raise InputError(
                    f"array '{name}' of '{path}' contains Python objects, which are not read for "
                    "security: save numbers, or strings with dtype=str"
                ) from error
        return arrays


def _data_attributes(path: Path) -> dict[str, Any]:
    """Return the attributes of the PyG `Data` in a `.pt` file by name."""
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    allowed = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        name = re.search(r"(?:GLOBAL|global|class|function) '?(\w+\.[\w.]+)", str(error))
        raise InputError(
            f"'{path}' contains {name[1] if name else 'other objects'}, which is not read for "
            "security: save a PyG Data with tensors only (convert a HeteroData with "
            "to_homogeneous()), or a .npz file"
        ) from error
    if type(content) is not Data:
        raise InputError(
            f"'{path}' contains a {type(content).__name__}: save a PyG Data, such as dataset[0]"
        )
    return {name: value for name, value in content.to_dict().items() if value is not None}

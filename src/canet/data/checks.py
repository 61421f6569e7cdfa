"""Input validation: reject invalid graphs and convert valid ones to a standard form.

The input of each function is a tensor, a numpy array or a list, which is never changed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.arrays import as_array, as_column, as_tensor, dtype_name
from canet.data.labels import check_labels
from canet.data.raw_graph import NodeSet
from canet.errors import InputError, check_name, first_line, listed
from canet.scoring.metrics import METRICS
from canet.util.memory import check_memory
from canet.util.sparse import from_scipy

MIN_RECIPROCITY = 0.1
"""If a smaller share of the edges has a reverse edge, the edges look stored in one direction."""
MIN_ONE_WAY_EDGES = 8  # with fewer edges, missing reverse edges may be chance


def check_features(x: object, without: Iterable[object] = ()) -> Tensor:
    """Return finite features as float32 $[N, D]$, dense or sparse CSR.

    Accepts dense matrices of any real type, the sparse layouts of torch and scipy matrices. The
    columns `without` become 0; see `check_columns`.
    """
    if x is None:
        raise InputError(
            "the graph has no features x: set data.x, for example to node degrees with "
            "torch_geometric.transforms.LocalDegreeProfile"
        )
    from sklearn.utils import check_array  # a second of imports that a benchmark task does not need

    try:
        matrix = _numpy_or_scipy(x)
        if matrix.ndim != 2:
            shape = list(matrix.shape)
            raise InputError(f"Reshape your data: x has shape {shape}, not [nodes, features]")
        if isinstance(matrix, np.ndarray) and matrix.dtype != np.float32:
            check_memory(4 * matrix.size, "x as float32")
        if hasattr(matrix, "check_format"):  # scipy does not check the indices on conversion
            matrix.check_format(full_check=True)
        with np.errstate(over="ignore"):  # too large numbers become infinity and are found below
            if sp.issparse(matrix) and matrix.dtype.kind in "biuf":
                matrix = matrix.astype(np.float32)  # before duplicate entries are summed
            matrix = check_array(
                matrix, accept_sparse="csr", dtype=np.float32, ensure_all_finite=False
            )
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(f"x is not a valid feature matrix: {first_line(error)}") from error
    if left_out := check_columns(without, matrix.shape[1]):
        matrix = matrix.copy()
        columns = matrix.indices if sp.issparse(matrix) else np.arange(matrix.shape[1])
        (matrix.data if sp.issparse(matrix) else matrix)[..., np.isin(columns, left_out)] = 0
    values = matrix.data if sp.issparse(matrix) else matrix
    with np.errstate(invalid="ignore"):
        is_finite = np.isfinite(values.sum(dtype=np.float64))  # faster than a mask of all entries
    if not is_finite:
        wrong = ~np.isfinite(values)
        columns = np.unique(matrix.indices[wrong] if sp.issparse(matrix) else np.nonzero(wrong)[1])
        raise InputError(
            f"x contains NaN, infinity or numbers beyond float32 (3.4e38): {wrong.sum():,} entries "
            f"in the columns {listed(columns.tolist())}; replace them, for example by their mean"
        )
    if sp.issparse(matrix):
        return from_scipy(matrix)
    return torch.from_numpy(np.require(matrix, requirements=["C", "W"]))


def check_columns(without: Iterable[object], num_columns: int) -> list[int]:
    """Return the numbers of columns to leave out: integers, or text such as `3` and `3,7`."""
    parts = [part.strip() for one in without for part in str(one).split(",")]
    for part in parts:
        if not part.isdecimal() or int(part) >= num_columns:
            raise InputError(
                f"column '{part}' cannot be left out of x, which has the columns 0 to "
                f"{num_columns - 1:,}: pass column numbers to fit, and all columns to predict"
            )
    return sorted({int(part) for part in parts})


def check_edges(edge_index: object, num_nodes: int) -> Tensor:
    """Return edges as int64 $[2, E]$ (source, target) between nodes 0 to N - 1."""
    if edge_index is None:
        raise InputError(
            "the graph has no edge_index: set data.edge_index to integers of shape [2, E]"
        )
    edges = as_tensor(edge_index, "edge_index")
    if edges.numel() == 0 and edges.dim() <= 2:
        return torch.empty(2, 0, dtype=torch.long)
    if edges.dim() != 2 or edges.shape[0] != 2:
        raise InputError(
            f"edge_index has shape {list(edges.shape)}, not [2, E]: put the sources into row 0 and "
            "the targets into row 1, for example with .t().contiguous()"
        )
    edges = _as_integers(edges, "edge_index", "convert the node ids with .long()")
    low, high = int(edges.min()), int(edges.max())
    if low < 0 or high >= num_nodes:
        wrong = ((edges < 0) | (edges >= num_nodes)).any(dim=0)
        raise InputError(
            f"edge_index contains node {low if low < 0 else high}, but x has {num_nodes:,} rows: "
            f"{int(wrong.sum()):,} of {edges.shape[1]:,} edges are invalid, the first in column "
            f"{int(wrong.nonzero()[0])}; node ids must be row numbers of x, counted from 0"
        )
    return edges.contiguous()


def check_edge_weights(edge_weight: object, num_edges: int) -> Tensor:
    """Return finite weights ≥ 0 as float32 $[E]$."""
    stored = as_tensor(edge_weight, "edge_weight")
    weights = as_column(stored, "edge_weight", num_edges, "weight per edge", "edges").float()
    wrong = ~(weights.isfinite() & (weights >= 0))
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise InputError(
            f"edge_weight {row} is {weights[row]:g}, but weights must be finite numbers ≥ 0"
        )
    return weights


def check_sample_weights(sample_weight: object, num_nodes: int, train: Tensor) -> Tensor:
    """Return weights $[N]$ as float32, scaled to mean 1 on the training nodes; 1 if unknown."""
    stored = as_tensor(sample_weight, "sample_weight")
    weights = as_column(stored, "sample_weight", num_nodes, "weight per node").double()
    used = weights[train]
    if not (used.isfinite() & (used >= 0)).all() or not (used > 0).any():
        raise InputError(
            "sample_weight must be a finite number ≥ 0 for each training node, and > 0 for some"
        )
    is_known = weights.isfinite() & (weights >= 0)
    return torch.where(is_known, weights / used.mean(), 1.0).float()


def check_nodes(
    nodes: NodeSet,
    num_nodes: int,
    name: str,
    find: Callable[[list[str]], Mapping[str, int]] | None = None,
) -> Tensor:
    """Return the rows (int64) of nodes: a boolean mask $[N]$, rows, or names that `find` knows."""
    if not isinstance(nodes, Tensor) and as_array(nodes, name).dtype.kind in "UO":
        if find is None:
            raise InputError(
                f"{name} contains text: pass a boolean mask, row numbers from 0, or the names of "
                "nodes if the graph has a node_id"
            )
        names = [str(node) for node in nodes]
        rows = find(names)
        for node in names:
            if node not in rows:
                raise InputError(f"the graph has no node '{node[:40]}': check {name}")
        return torch.tensor([rows[node] for node in names], dtype=torch.long)
    chosen = as_tensor(nodes, name)
    if chosen.dim() == 2 and chosen.shape[1] == 1:
        chosen = chosen[:, 0]
    if chosen.dim() != 1:
        shape = list(chosen.shape)
        raise InputError(f"{name} has shape {shape}, not [nodes]: pass a column, as {name}[:, 0]")
    if chosen.dtype == torch.bool:
        if chosen.numel() != num_nodes:
            raise InputError(
                f"{name} is a mask of length {chosen.numel():,}, but the graph has {num_nodes:,} "
                "nodes: pass one entry per node"
            )
        return chosen.nonzero().squeeze(1)
    if chosen.numel() == 0:
        return torch.empty(0, dtype=torch.long)
    chosen = _as_integers(chosen, name, "pass a boolean mask or node ids")
    low, high = int(chosen.min()), int(chosen.max())
    if low < 0 or high >= num_nodes:
        raise InputError(
            f"{name} contains node {low if low < 0 else high}, but x has {num_nodes:,} rows: pass "
            "row numbers of x, counted from 0, or a boolean mask"
        )
    if chosen.unique().numel() != chosen.numel():
        raise InputError(
            f"{name} has a node id twice: remove duplicates, or convert a mask with .bool()"
        )
    return chosen


def check_disjoint(splits: Mapping[str, Tensor], num_nodes: int) -> None:
    """Reject splits (name → node ids) that are empty or share a node."""
    owner = torch.full((num_nodes,), -1)
    names = list(splits)
    for number, (name, nodes) in enumerate(splits.items()):
        if nodes.numel() == 0:
            raise InputError(f"{name} is empty: it needs at least one node")
        taken = nodes[owner[nodes] >= 0]
        if taken.numel():
            other = int(owner[taken[0]])
            shared = int((owner[taken] == other).sum())
            raise InputError(
                f"{names[other]} and {name} overlap: {shared:,} nodes are in both, such as node "
                f"{int(taken[0])}; assign each node to one split only"
            )
        owner[nodes] = number


def check_classes(y: Tensor, num_classes: int) -> None:
    """Reject training labels $[n]$ that lack one of the classes 0 to C - 1, or if C is 1."""
    if num_classes < 2:
        raise InputError("y contains only one class: training needs at least two classes")
    seen = set(y.unique().tolist())
    missing = num_classes - len(seen)
    if missing:
        lowest = (c for c in range(num_classes) if c not in seen)
        raise InputError(
            f"train has no node of {missing:,} of the {num_classes:,} classes "
            f"({listed(lowest, missing)}): add nodes of these classes, or number the classes from "
            "0 without gaps"
        )


def check_metric(metric: str, num_classes: int, valid: Tensor | None = None) -> None:
    """Reject a metric that is unknown, or undefined for C classes or the labels `valid` $[n]$."""
    check_name("metric", metric, METRICS)
    if METRICS[metric].ranks:
        if num_classes != 2:
            others = " or ".join(name for name, other in METRICS.items() if not other.ranks)
            raise InputError(f"{metric} requires two classes, not {num_classes}: use {others}")
        if valid is not None and valid.unique().numel() < 2:
            raise InputError(
                f"valid contains only one class, but '{metric}' needs two: add nodes to valid"
            )


def check_batch(batch: object, num_nodes: int) -> Tensor:
    """Return the graph $[N]$ of each node; graphs are numbered from 0 in the order of names."""
    number = torch.from_numpy(check_labels(batch, num_nodes, "batch").codes)
    if (number < 0).any():
        raise InputError(
            f"batch is missing for {int((number < 0).sum()):,} nodes: every node needs a graph"
        )
    return number


def check_times(times: object, num_nodes: int) -> np.ndarray:
    """Return finite times as float64 $[N]$; dates become seconds since 1970."""
    values = as_column(as_array(times, "time"), "time", num_nodes, "time per node")
    if values.dtype.kind == "M":
        microseconds = values.astype("datetime64[us]").astype(np.int64)
        values = np.where(np.isnat(values), np.nan, microseconds / 1e6)
    if values.dtype.kind not in "iufb":
        raise InputError(
            f"time contains {dtype_name(values)}: pass numbers, or convert it to dates with "
            "numpy.array(time, dtype='datetime64[s]')"
        )
    values = values.astype(np.float64)
    missing = int((~np.isfinite(values)).sum())
    if missing:
        raise InputError(f"time is missing for {missing:,} nodes: every node needs a time")
    return values


def is_one_way(edge_index: Tensor) -> bool:
    """Whether few of the edges $[2, E]$ apart from self-loops have a reverse edge."""
    source, target = edge_index.numpy()
    proper = source != target
    if proper.sum() < MIN_ONE_WAY_EDGES:
        return False
    shape = [int(edge_index.max()) + 1] * 2
    counts = sp.coo_matrix((proper.astype(np.int32), (source, target)), shape).tocsr()
    both_ways = counts.multiply(counts.T.astype(bool)).sum()
    return bool(both_ways / proper.sum() < MIN_RECIPROCITY)


def edge_notes(edge_index: Tensor, undirected: bool | None = None) -> list[str]:
    """Return a message if there are no edges, or few have a reverse edge, which may be needed."""
    if not edge_index.shape[1]:
        return ["the graph has no edges: a model can only use the features of each node"]
    if undirected is None and is_one_way(edge_index):
        return [
            "few edges also exist in the reverse direction: if the graph is undirected, pass "
            "undirected=True (command line: --undirected), else undirected=False (--directed)"
        ]
    return []


def _as_integers(values: Tensor, name: str, fix: str) -> Tensor:
    if values.dtype.is_floating_point or values.dtype.is_complex or values.dtype == torch.bool:
        kind = str(values.dtype).removeprefix("torch.")
        raise InputError(f"{name} contains {kind}, not integers: {fix}")
    return values.long()


def _numpy_or_scipy(x: object) -> Any:
    """Return dense or sparse features as a type that scikit-learn accepts."""
    if sp.issparse(x):
        return x
    if not isinstance(x, Tensor) or x.layout == torch.strided:
        array = as_array(x, "x")
        if array.dtype.kind not in "biufcO":
            raise InputError(f"x contains {dtype_name(array)}, but it must contain numbers")
        return array
    if x.dtype.is_complex or x.dim() != 2 or x.dense_dim():
        raise InputError("x is a sparse tensor, but it is not a matrix of real numbers")
    entries = x.detach().cpu().to_sparse_coo()
    values, indices = entries._values().float().numpy(), entries._indices().numpy()
    return sp.coo_matrix((values, indices), shape=tuple(x.shape))

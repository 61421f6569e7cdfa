"""Input validation: what is wrong with a graph is rejected here, and other forms are converted.

Each function takes a tensor, a numpy array or a list as people bring it, and returns the one form
that the rest of the package works with. The input is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_array
from torch import Tensor

from canet.data.arrays import as_array, as_tensor, word_for
from canet.data.labels import check_labels
from canet.data.metrics import Metric
from canet.errors import InputError, first_line, listed, unknown_name
from canet.util.sparse import from_scipy

FEW_BOTH_WAYS = 0.1
"""Share of edges with their reverse below which a graph looks as if stored one way."""
MIN_ONE_WAY_EDGES = 8  # with fewer it may be chance that no edge has its reverse


def check_features(x: Any) -> Tensor:
    """Features as float32 $[N, D]$, dense or sparse CSR, all finite.

    Accepts dense matrices of any real type, torch's sparse layouts and scipy's matrices.
    """
    if x is None:
        raise InputError(
            "x is missing: give each node features, such as its degree "
            "(torch_geometric.transforms.LocalDegreeProfile)"
        )
    try:
        matrix = _numpy_or_scipy(x)
        if matrix.ndim != 2:
            shape = list(matrix.shape)
            raise InputError(f"Reshape your data: x has shape {shape}, not [nodes, features]")
        if hasattr(matrix, "check_format"):  # scipy converts indices outside the shape unchecked
            matrix.check_format(full_check=True)
        with np.errstate(over="ignore"):  # what is too large becomes infinity, and is found below
            if sp.issparse(matrix) and matrix.dtype.kind in "biuf":
                matrix = matrix.astype(np.float32)  # before entries of the same place add up
            matrix = check_array(
                matrix, accept_sparse="csr", dtype=np.float32, ensure_all_finite=False
            )
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(f"x cannot be used: {first_line(error)}") from error
    values = matrix.data if sp.issparse(matrix) else matrix
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(values.sum(dtype=np.float64))  # a pass without a mask
    if not finite:
        wrong = ~np.isfinite(values)
        columns = np.unique(matrix.indices[wrong] if sp.issparse(matrix) else np.nonzero(wrong)[1])
        raise InputError(
            "x has NaN, infinity or numbers beyond float32 (3.4e38) in "
            f"{wrong.sum():,} entries, columns {listed(columns.tolist())}: replace them, for "
            "example by the mean of the column"
        )
    if sp.issparse(matrix):
        return from_scipy(matrix)
    return torch.from_numpy(np.require(matrix, requirements=["C", "W"]))


def check_edges(edge_index: Any, num_nodes: int) -> Tensor:
    """Edges as int64 $[2, E]$ (source, target) between nodes 0 to N - 1."""
    if edge_index is None:
        raise InputError("edge_index is missing: give the edges as integers of shape [2, E]")
    edges = as_tensor(edge_index, "edge_index")
    if edges.numel() == 0 and edges.dim() <= 2:
        return torch.empty(2, 0, dtype=torch.long)
    if edges.dim() != 2 or edges.shape[0] != 2:
        transposed = edges.dim() == 2 and edges.shape[1] == 2
        fix = "transpose it, .t().contiguous()" if transposed else "stack sources over targets"
        raise InputError(f"edge_index has shape {list(edges.shape)}, not [2, E]: {fix}")
    edges = _whole(edges, "edge_index", "node ids are integers; convert with .long()")
    low, high = int(edges.min()), int(edges.max())
    if low < 0 or high >= num_nodes:
        wrong = ((edges < 0) | (edges >= num_nodes)).any(dim=0)
        raise InputError(
            f"edge_index contains node {low if low < 0 else high}, but x has {num_nodes:,} rows "
            f"({int(wrong.sum()):,} of {edges.shape[1]:,} edges, the first in column "
            f"{int(wrong.nonzero()[0])}): number nodes as the rows of x"
        )
    return edges.contiguous()


def check_nodes(nodes: Any, num_nodes: int, name: str) -> Tensor:
    """Node ids, int64, of a boolean mask $[N]$ or of ids, which keep their order."""
    chosen = as_tensor(nodes, name)
    if chosen.dim() == 2 and chosen.shape[1] == 1:
        chosen = chosen[:, 0]
    if chosen.dim() != 1:
        fix = f"choose one column, such as {name}[:, 0]" if chosen.dim() == 2 else "give a mask"
        raise InputError(f"{name} has shape {list(chosen.shape)}, not [nodes]: {fix}")
    if chosen.dtype == torch.bool:
        if chosen.numel() != num_nodes:
            raise InputError(
                f"{name} is a mask of length {chosen.numel():,} and the graph has {num_nodes:,} "
                "nodes: give one entry per node"
            )
        return chosen.nonzero().squeeze(1)
    if chosen.numel() == 0:
        return torch.empty(0, dtype=torch.long)
    chosen = _whole(chosen, name, "give a boolean mask or node ids")
    low, high = int(chosen.min()), int(chosen.max())
    if low < 0 or high >= num_nodes:
        raise InputError(
            f"{name} contains node {low if low < 0 else high}, but x has {num_nodes:,} rows: give "
            "numbers of rows of x, or a boolean mask"
        )
    if chosen.unique().numel() != chosen.numel():
        raise InputError(
            f"{name} contains a node twice: give each id once; a mask must be boolean (.bool())"
        )
    return chosen


def check_disjoint(splits: Mapping[str, Tensor], num_nodes: int) -> None:
    """Reject node sets, by name, that share a node or are empty."""
    owner = torch.full((num_nodes,), -1)
    names = list(splits)
    for number, (name, nodes) in enumerate(splits.items()):
        if nodes.numel() == 0:
            raise InputError(f"{name} is empty: put at least one node into it")
        taken = nodes[owner[nodes] >= 0]
        if taken.numel():
            other = int(owner[taken[0]])
            shared = int((owner[taken] == other).sum())
            raise InputError(
                f"{names[other]} and {name} overlap (nodes in both: {shared:,}, such as "
                f"{int(taken[0])}): a node belongs to one set only"
            )
        owner[nodes] = number


def check_classes(y: Tensor, num_classes: int) -> None:
    """Reject training labels $[n]$ that are of one class, or lack one of 0 to C - 1."""
    if num_classes < 2:
        raise InputError("y has one class only: training needs two or more")
    seen = set(y.unique().tolist())
    missing = num_classes - len(seen)
    if missing:
        lowest = (c for c in range(num_classes) if c not in seen)
        raise InputError(
            f"train lacks {missing:,} of {num_classes:,} classes ({listed(lowest, missing)}): "
            "number classes from 0 without gaps, and train on some nodes of each"
        )


def check_metric(metric: str, num_classes: int, valid: Tensor | None = None) -> None:
    """Reject a metric that is unknown, or undefined for the classes or for labels `valid` $[n]$."""
    if metric not in get_args(Metric):
        raise InputError(str(unknown_name("metric", str(metric), get_args(Metric))))
    if metric == "roc_auc":
        if num_classes != 2:
            raise InputError(
                f"metric roc_auc is for two classes and there are {num_classes}: use macro_f1 or "
                "accuracy"
            )
        if valid is not None and valid.unique().numel() < 2:
            raise InputError("valid lacks a class, so that roc_auc is undefined: add such nodes")


def check_groups(groups: Any, num_nodes: int, name: str) -> tuple[np.ndarray, Tensor]:
    """Names of groups, ascending, and the number $[N]$ of each node's; -1 where it has none.

    Groups are environments or graphs: any integers or strings, one per node.
    """
    values, known = check_labels(groups, num_nodes, name)
    names, numbers = np.unique(values[known], return_inverse=True)
    number = torch.full((num_nodes,), -1)
    number[torch.from_numpy(known)] = torch.from_numpy(numbers.astype(np.int64))
    return names, number


def check_graphs(graphs: Any, num_nodes: int, name: str) -> Tensor:
    """The number $[N]$ of each node's graph, counted from 0 in the order of their names."""
    _, number = check_groups(graphs, num_nodes, name)
    if (number < 0).any():
        raise InputError(
            f"{name} is missing for some nodes: give every node the number of its graph"
        )
    return number


def check_times(times: Any, num_nodes: int) -> np.ndarray:
    """Times as float64 $[N]$, all finite; dates count their seconds since 1970."""
    values = as_array(times, "time")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind == "M":
        microseconds = values.astype("datetime64[us]").astype(np.int64)
        values = np.where(np.isnat(values), np.nan, microseconds / 1e6)
    if values.dtype.kind not in "iufb":
        raise InputError(
            f"time holds {word_for(values)}: give numbers, or dates of numpy "
            "(numpy.array(time, dtype='datetime64[s]'))"
        )
    values = values.astype(np.float64)
    if values.shape != (num_nodes,):
        raise InputError(
            f"time has shape {list(values.shape)} and the graph {num_nodes:,} nodes: give one time "
            "per node"
        )
    missing = int((~np.isfinite(values)).sum())
    if missing:
        raise InputError(f"time is missing for {missing:,} nodes: give each node a time")
    return values


def one_way(edge_index: Tensor) -> bool:
    """Whether there are several edges in $[2, E]$ and few, self-loops aside, have their reverse."""
    source, target = edge_index.numpy()
    proper = source != target
    if proper.sum() < MIN_ONE_WAY_EDGES:
        return False
    shape = [int(edge_index.max()) + 1] * 2
    counts = sp.coo_matrix((proper.astype(np.int32), (source, target)), shape).tocsr()
    both_ways = counts.multiply(counts.T.astype(bool)).sum()
    return bool(both_ways / proper.sum() < FEW_BOTH_WAYS)


def _whole(values: Tensor, name: str, fix: str) -> Tensor:
    """Integers as int64."""
    if values.dtype.is_floating_point or values.dtype.is_complex or values.dtype == torch.bool:
        kind = str(values.dtype).removeprefix("torch.")
        raise InputError(f"{name} holds {kind}, not integers: {fix}")
    return values.long()


def _numpy_or_scipy(x: Any) -> Any:
    """Features, dense or sparse, in a form that scikit-learn reads."""
    if sp.issparse(x):
        return x
    if not isinstance(x, Tensor) or x.layout == torch.strided:
        array = as_array(x, "x")
        if array.dtype.kind not in "biufcO":
            raise InputError(f"x holds {word_for(array)}: it must hold numbers")
        return array
    if x.dtype.is_complex or x.dim() != 2 or x.dense_dim():
        raise InputError("x is a sparse tensor, but not a matrix of real numbers: convert it")
    x = x.detach().cpu().to_sparse_coo()
    values, place = x._values().float().numpy(), x._indices().numpy()
    return sp.coo_matrix((values, place), shape=tuple(x.shape))

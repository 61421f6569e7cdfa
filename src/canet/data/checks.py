"""The door: what is wrong with a graph is refused here, and what can be converted is converted.

Each function takes a tensor, a numpy array or a list as people bring it, and gives the one form
that the rest of the package works with. Nothing that is given is ever changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.arrays import as_array, as_tensor, kind_of, word_for
from canet.data.labels import check_labels
from canet.data.metrics import Metric
from canet.errors import InputError, listed, unknown_name
from canet.util.sparse import from_scipy

FEW_BOTH_WAYS = 0.1
"""Share of edges with their reverse below which a graph looks as if stored one way."""
FEWEST_ONE_WAY_EDGES = 8  # below, no edge with its reverse may be chance


def check_features(x: Any) -> Tensor:
    """Features as float32 $[N, D]$, dense or sparse CSR, all finite.

    Taken are dense matrices of any real type, torch's sparse layouts and scipy's matrices.
    """
    if x is None:
        raise InputError(
            "x is missing: give each node features, such as its degree "
            "(torch_geometric.transforms.LocalDegreeProfile)"
        )
    matrix = _real_matrix(x)
    if matrix.dim() != 2:
        raise InputError(
            f"Reshape your data: x has shape {list(matrix.shape)} and must be [nodes, features]"
        )
    for size, what in zip(matrix.shape, ("node", "feature"), strict=True):
        if not size:
            raise InputError(
                f"x has 0 {what}(s) (shape={tuple(matrix.shape)}) while a minimum of 1 is required."
            )
    values = matrix.values() if matrix.layout == torch.sparse_csr else matrix
    if not torch.isfinite(values).all():
        raise _not_finite(matrix)
    return matrix


def check_edges(edge_index: Any, num_nodes: int) -> Tensor:
    """Edges as int64 $[2, E]$ (source, target) between nodes 0 to N - 1."""
    if edge_index is None:
        raise InputError("edge_index is missing: give the edges as integers of shape [2, E]")
    edges = as_tensor(edge_index, "edge_index")
    if edges.numel() == 0 and edges.dim() <= 2:
        return torch.empty(2, 0, dtype=torch.long)
    if edges.dim() != 2 or edges.shape[0] != 2:
        turned = edges.dim() == 2 and edges.shape[1] == 2
        mend = "turn it with .t().contiguous()" if turned else "stack sources over targets"
        raise InputError(f"edge_index has shape {list(edges.shape)}, not [2, E]: {mend}")
    if edges.dtype.is_floating_point or edges.dtype.is_complex or edges.dtype == torch.bool:
        raise InputError(
            f"edge_index holds {kind_of(edges)}, not integers: node ids are whole numbers; convert "
            "with .long()"
        )
    edges = edges.long()
    low, high = int(edges.min()), int(edges.max())
    if low < 0 or high >= num_nodes:
        wrong = ((edges < 0) | (edges >= num_nodes)).any(dim=0)
        first = int(wrong.nonzero()[0])
        raise InputError(
            f"edge_index names nodes {low} to {high}, the graph has 0 to {num_nodes - 1} "
            f"({int(wrong.sum()):,} of {edges.shape[1]:,} edges, the first at place {first}): "
            "number nodes as the rows of x"
        )
    return edges.contiguous()


def check_nodes(nodes: Any, num_nodes: int, name: str) -> Tensor:
    """Node ids, int64, of a boolean mask $[N]$ or of ids, which keep their order."""
    chosen = as_tensor(nodes, name)
    if chosen.dim() == 2 and chosen.shape[1] == 1:
        chosen = chosen[:, 0]
    if chosen.dim() != 1:
        columns = chosen.dim() == 2
        mend = (
            f"choose one column, such as {name}[:, 0]" if columns else "give a boolean mask or ids"
        )
        raise InputError(f"{name} has shape {list(chosen.shape)}, not [nodes]: {mend}")
    if chosen.dtype == torch.bool:
        if chosen.numel() != num_nodes:
            raise InputError(
                f"{name} is a mask of length {chosen.numel():,} and the graph has {num_nodes:,} "
                "nodes: give it one entry a node"
            )
        return chosen.nonzero().squeeze(1)
    if chosen.numel() == 0:
        return torch.empty(0, dtype=torch.long)
    if chosen.dtype.is_floating_point or chosen.dtype.is_complex:
        raise InputError(f"{name} holds {kind_of(chosen)}: give a boolean mask or node ids")
    chosen = chosen.long()
    low, high = int(chosen.min()), int(chosen.max())
    if low < 0 or high >= num_nodes:
        raise InputError(
            f"{name} names nodes {low} to {high}, the graph has 0 to {num_nodes - 1}: give ids of "
            "rows of x, or a boolean mask"
        )
    if chosen.unique().numel() != chosen.numel():
        raise InputError(
            f"{name} names some node twice: give each id once; a mask must be boolean (.bool())"
        )
    return chosen


def check_disjoint(splits: Mapping[str, Tensor], num_nodes: int) -> None:
    """Refuse node sets, by name, that share a node or are empty."""
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
    """Refuse training labels $[n]$ that are of one class, or lack one of 0 to C - 1."""
    if num_classes < 2:
        raise InputError("all labels are of one class: there is nothing to tell apart")
    seen = set(y.unique().tolist())
    missing = num_classes - len(seen)
    if missing:
        lowest = (c for c in range(num_classes) if c not in seen)
        raise InputError(
            f"train lacks {missing:,} of {num_classes:,} classes "
            f"({listed(lowest, missing)}): number classes from 0 on without "
            "gaps, and train on some nodes of each"
        )


def check_metric(metric: str, num_classes: int) -> None:
    """Refuse an unknown metric, and one that does not fit the number of classes."""
    if metric not in get_args(Metric):
        raise InputError(str(unknown_name("metric", str(metric), get_args(Metric))))
    if metric == "roc_auc" and num_classes != 2:
        raise InputError(
            f"metric roc_auc is for two classes and there are {num_classes}: take macro_f1 or "
            "accuracy"
        )


def check_groups(groups: Any, num_nodes: int, name: str) -> tuple[np.ndarray, Tensor]:
    """Names of groups, ascending, and the number $[N]$ of each node's; -1 where it has none.

    Groups are environments or graphs: any integers or strings, one a node.
    """
    values, known = check_labels(groups, num_nodes, name)
    names, numbers = np.unique(values[known], return_inverse=True)
    number = torch.full((num_nodes,), -1)
    number[torch.from_numpy(known)] = torch.from_numpy(numbers.astype(np.int64))
    return names, number


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
            f"time holds {word_for(values)}: give numbers, or dates as numpy has them "
            "(numpy.array(time, dtype='datetime64[s]'))"
        )
    values = values.astype(np.float64)
    if values.shape != (num_nodes,):
        raise InputError(
            f"time has shape {list(values.shape)} and the graph {num_nodes:,} nodes: give one time "
            "a node"
        )
    if not np.isfinite(values).all():
        missing = int((~np.isfinite(values)).sum())
        raise InputError(f"time is missing for {missing:,} nodes: give each node a time")
    return values


def one_way(edge_index: Tensor) -> bool:
    """Whether hardly an edge of $[2, E]$ but self-loops has its reverse, of several edges."""
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    if source.numel() < FEWEST_ONE_WAY_EDGES:
        return False
    size = int(edge_index.max()) + 1
    forth, back = source * size + target, target * size + source
    return float(torch.isin(back, forth).double().mean()) < FEW_BOTH_WAYS


def _real_matrix(x: Any) -> Tensor:
    """Float32, dense or sparse CSR."""
    if sp.issparse(x):
        return _from_scipy(x)
    sparse = isinstance(x, Tensor) and x.layout != torch.strided
    matrix = x.detach().cpu() if sparse else as_tensor(x, "x")
    if matrix.dtype.is_complex:
        raise InputError("Complex data not supported: split x into real and imaginary columns")
    if not sparse:
        return matrix.to(torch.float32).contiguous()
    if matrix.dim() != 2:
        raise InputError(f"x has shape {list(matrix.shape)}: it must be [nodes, features]")
    if matrix.dense_dim() or matrix.layout in (torch.sparse_bsr, torch.sparse_bsc):
        raise InputError("x is sparse in blocks: convert it with .to_dense().to_sparse_csr()")
    try:
        return _from_torch(matrix)
    except RuntimeError:
        raise _damaged() from None


def _from_scipy(x: Any) -> Tensor:
    if x.dtype.kind not in "iufb":
        raise InputError(f"x holds {x.dtype}: features are real numbers; convert them")
    if x.ndim != 2:
        raise InputError(f"x has shape {list(x.shape)}: it must be [nodes, features]")
    with np.errstate(over="ignore"):
        matrix = x.astype(np.float32)
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format()
        return from_scipy(matrix)
    except (ValueError, RuntimeError):
        raise _damaged() from None


def _from_torch(matrix: Tensor) -> Tensor:
    if matrix.layout == torch.sparse_coo:
        coo = torch.sparse_coo_tensor(
            matrix._indices(), matrix._values().float(), matrix.shape, check_invariants=True
        )
        matrix = coo.coalesce()
    csr = matrix.to_sparse_csr()
    return torch.sparse_csr_tensor(
        csr.crow_indices().long(),
        csr.col_indices().long(),
        csr.values().float(),
        csr.shape,
        check_invariants=True,
    )


def _damaged() -> InputError:
    return InputError(
        "x is a damaged sparse matrix, its indices do not fit its shape: make it anew"
    )


def _not_finite(matrix: Tensor) -> InputError:
    if matrix.layout == torch.sparse_csr:
        wrong = matrix.col_indices()[~torch.isfinite(matrix.values())]
    else:
        wrong = (~torch.isfinite(matrix)).nonzero()[:, 1]
    columns = wrong.unique().tolist()
    word = "column" if len(columns) == 1 else "columns"
    return InputError(
        "x holds NaN or infinity (or numbers beyond 3.4e38, where float32 ends) in "
        f"{word} {listed(columns)}; entries in all: {wrong.numel():,}; replace them "
        "before, for example by the column's mean"
    )

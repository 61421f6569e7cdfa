"""The door: what is wrong with a graph is refused here, and what can be converted is converted.

Each function takes a tensor, a numpy array or a list as people bring it, and gives the one form
that the rest of the package works with. Nothing that is given is ever changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.arrays import as_array, as_tensor, kind_of, word_for
from canet.data.labels import check_labels
from canet.errors import InputError, unknown_name
from canet.sparse import from_scipy

Metric = Literal["accuracy", "roc_auc", "macro_f1"]
MOST_NAMED = 5  # columns, nodes or classes that a message lists
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
    if matrix.dim() != 2 or 0 in matrix.shape:
        raise InputError(
            f"x has shape {list(matrix.shape)}: it must be [nodes, features], with one of each or "
            "more"
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
        mend = f": choose one column, such as {name}[:, 0]" if columns else ""
        raise InputError(f"{name} has shape {list(chosen.shape)}, not [nodes]{mend}")
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
        taken = owner[nodes] >= 0
        if taken.any():
            node = int(nodes[taken][0])
            raise InputError(
                f"{names[int(owner[node])]} and {name} overlap in {int(taken.sum()):,} nodes, such "
                f"as {node}: a node belongs to one set only"
            )
        owner[nodes] = number


def check_classes(y: Tensor, num_classes: int) -> None:
    """Refuse training labels $[n]$ that are of one class, or lack one of 0 to C - 1."""
    if num_classes < 2:
        raise InputError("all labels are of one class: there is nothing to tell apart")
    seen = torch.isin(torch.arange(num_classes), y) if num_classes < 10**6 else y.new_zeros(1)
    if not seen.all():
        missing = (~seen).nonzero().squeeze(1).tolist()
        raise InputError(
            f"train lacks {len(missing):,} of {num_classes:,} classes ({listed(missing)}): number "
            "classes from 0 on without gaps, and train on some nodes of each"
        )


def check_metric(metric: str, num_classes: int) -> None:
    """Refuse an unknown metric, and one that does not fit the number of classes."""
    if metric not in get_args(Metric):
        raise InputError(str(unknown_name("metric", metric, get_args(Metric))))
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
        values = np.where(np.isnat(values), np.nan, values.astype("datetime64[s]").astype(float))
    if values.dtype.kind not in "iufb":
        raise InputError(f"time holds {word_for(values)}: give numbers or numpy dates")
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
    """Whether no edge of $[2, E]$ but self-loops has its reverse, in a graph with several edges."""
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    if source.numel() < FEWEST_ONE_WAY_EDGES:
        return False
    size = int(edge_index.max()) + 1
    forth, back = source * size + target, target * size + source
    return not torch.isin(back, forth).any()


def listed(items: Any) -> str:
    """The first of some items, and how many more there are."""
    texts = [str(item) for item in items]
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more


def _real_matrix(x: Any) -> Tensor:
    """Float32, dense or sparse CSR."""
    if sp.issparse(x):
        if x.dtype.kind not in "iufb":
            raise InputError(f"x holds {x.dtype}: features are numbers")
        return from_scipy(x)
    matrix = as_tensor(x, "x")
    if matrix.dtype.is_complex:
        raise InputError("x holds complex numbers: split them into real and imaginary columns")
    if matrix.layout == torch.strided:
        return matrix.to(torch.float32).contiguous()
    if matrix.dim() != 2:
        raise InputError(f"x has shape {list(matrix.shape)}: it must be [nodes, features]")
    try:
        return _checked_csr(matrix)
    except RuntimeError:
        raise InputError("x is a damaged sparse matrix: its indices do not fit its shape") from None


def _checked_csr(matrix: Tensor) -> Tensor:
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


def _not_finite(matrix: Tensor) -> InputError:
    if matrix.layout == torch.sparse_csr:
        wrong = matrix.col_indices()[~torch.isfinite(matrix.values())]
    else:
        wrong = (~torch.isfinite(matrix)).nonzero()[:, 1]
    columns = wrong.unique().tolist()
    word = "column" if len(columns) == 1 else "columns"
    return InputError(
        f"x holds NaN or infinity in {wrong.numel():,} places, in {word} {listed(columns)}: "
        "replace them before, for example by the column's mean"
    )

"""Features as a model reads them: prepared by statistics of each graph alone, none of which is kept
in the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from canet.errors import InputError
from canet.methods.base import Preparation
from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.nn.sparse_matrix import Pattern

SAME = torch.finfo(torch.float32).eps
"""Deviation of a column, as a share of its mean, up to which all its values count as the same."""


def prepare_features(x: Tensor, graph: Tensor | None, how: Preparation) -> Features:
    r"""Features $[N, D]$, dense or sparse CSR, prepared graph by graph:

    - `raw`: as they are;
    - `rows`: $x_{vj} / \sum_i |x_{vi}|$;
    - `centred`: $x_{vj} - m_{gj}$, with m the mean over the nodes of v's graph g;
    - `standardised`: $(x_{vj} - m_{gj}) / s_{gj}$, with s their standard deviation, or 1 where all
      values are the same;
    - `quantile`: $\Phi^{-1}((r_{vj} - \frac12) / n_g)$, with r the rank of $x_{vj}$ among the $n_g$
      nodes of the graph, equal values sharing the mean of their ranks.

    Sparse features stay sparse: what is subtracted is an offset of each graph.

    Args:
        x: The features.
        graph: Number $[N]$ of each node's graph; None: all nodes are one graph.
        how: What to do.
    """
    rows = SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x
    if how == "raw":
        return rows
    if how == "rows":
        return _over_sums(rows)
    number = torch.zeros(x.shape[0], dtype=torch.long)
    if graph is not None:
        number = graph.unique(return_inverse=True)[1]
    if how == "quantile":
        return _normal_scores(rows, number)
    return _centred(rows, number, scaled=how == "standardised")


def _over_sums(x: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
    """Each row divided by the sum of its absolute values; rows of zeros stay."""
    if isinstance(x, Tensor):
        total = x.abs().sum(dim=1, dtype=torch.double)
        return (x / torch.where(total > 0, total, 1.0)[:, None]).float()
    row = x.pattern.row.long()
    total = torch.bincount(row, weights=x.value.abs(), minlength=x.shape[0])
    return SparseMatrix(x.pattern, (x.value / torch.where(total > 0, total, 1.0)[row]).float())


def _centred(x: Tensor | SparseMatrix, number: Tensor, scaled: bool) -> Features:
    """Features less the means of their graphs $[N]$, and divided by their deviations."""
    mean, deviation = _moments(x, number)
    scale = torch.ones_like(mean)
    if scaled:
        scale = torch.where(deviation > SAME * mean.abs(), 1 / deviation, 1.0)
    if isinstance(x, Tensor):
        return ((x - mean[number]) * scale[number]).float()
    pattern = x.pattern
    value = x.value * scale[number[pattern.row], pattern.col]
    one_hot = Pattern(torch.arange(len(number) + 1), number, len(mean))
    member = SparseMatrix(one_hot, torch.ones(len(number)))
    return ShiftedFeatures(SparseMatrix(pattern, value.float()), (-mean * scale).float(), member)


def _moments(x: Tensor | SparseMatrix, number: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation $[G, D]$ of the columns in each graph, in double precision."""
    size = torch.bincount(number)[:, None].double()
    shape = (len(size), x.shape[1])
    if isinstance(x, Tensor):
        zeros = torch.zeros(shape, dtype=torch.double)
        mean = zeros.index_add(0, number, x.double()) / size
        squares = zeros.index_add(0, number, (x - mean[number]).square())
    else:
        place = number[x.pattern.row] * shape[1] + x.pattern.col

        def total(values: Tensor | None = None) -> Tensor:
            """Sums of values of the entries, or their numbers."""
            return torch.bincount(place, values, minlength=shape[0] * shape[1]).view(shape)

        mean = total(x.value.double()) / size
        zeros = (size - total()) * mean.square()
        squares = total((x.value - mean.flatten()[place]).square()) + zeros
    return mean, (squares / size).sqrt()


def _normal_scores(x: Tensor | SparseMatrix, number: Tensor) -> Tensor:
    """The normal quantiles of ranks within each graph."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    if not isinstance(x, Tensor):
        raise InputError(
            "features=quantile needs dense features: convert x with .to_dense(), or choose "
            "features=standardised, which keeps them sparse"
        )
    scores = torch.empty_like(x)
    for nodes in number.argsort(stable=True).split(torch.bincount(number).tolist()):
        ranks = rankdata(x[nodes].numpy(), axis=0)
        scores[nodes] = torch.from_numpy(ndtri((ranks - 0.5) / len(nodes))).float()
    return scores

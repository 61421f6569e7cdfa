"""What a model predicts if nodes have some features of other nodes, for a diagnosis."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.util.sparse import Matrix, to_matrix

Change: TypeAlias = Callable[[np.ndarray], Tensor]  # donors $[N]$ → logits $[n, C]$
Replacing: TypeAlias = Callable[[np.ndarray], Change]
"""Numbers of columns → logits with these columns of donors; see `Fitted.replacing`."""
Share: TypeAlias = Callable[[Matrix, np.ndarray], Any]


def replacing_in(x: Matrix, whole: Any, share: Share, read: Callable[[Any], Tensor]) -> Replacing:
    """Replace columns of features x $[N, D]$ for a model that reads a sum over these columns.

    `whole` is this sum. `share` returns the part of it that comes from values $[N, d]$ of columns
    $[d]$. Only this part is computed again. `read` predicts with another sum.
    """

    def change_of(columns: np.ndarray) -> Change:
        own = x[:, columns]
        others = whole - share(own, columns)
        return lambda donors: read(others + share(own[donors], columns))

    return change_of


def product(x: Features, weight: np.ndarray) -> Matrix:
    """Return $x W$ $[N, H]$ for features $[N, D]$ and weights $[D, H]$."""
    if isinstance(x, ShiftedFeatures):
        return product(x.x, weight) + product(x.member, x.offset.numpy() @ weight)
    return to_matrix(x.as_torch if isinstance(x, SparseMatrix) else x) @ weight

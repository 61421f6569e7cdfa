"""What a model predicts if nodes have some features of other nodes, for a diagnosis."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.util.sparse import Matrix, to_matrix

Change: TypeAlias = Callable[[np.ndarray], Tensor]  # donors $[N]$ → logits $[n, C]$
Replacing: TypeAlias = Callable[[np.ndarray], Change]
"""Numbers of columns → logits with these columns of donors; see `Fitted.replacing`."""


def replacing_in(
    inputs: Matrix, share: Callable[[np.ndarray], Matrix], read: Callable[[Matrix], Tensor]
) -> Replacing:
    """Replace columns for a model that reads `inputs` $[N, H]$, a sum over the columns of features.

    `share` returns the part of this sum that comes from some columns. Only this part is computed
    again. `read` predicts with other inputs.
    """

    def change_of(columns: np.ndarray) -> Change:
        changed = share(columns)
        fixed = inputs - changed
        return lambda donors: read(fixed + changed[donors])

    return change_of


def only(x: Matrix, columns: np.ndarray) -> Matrix:
    """Return features $[N, D]$ with zeros in all other columns."""
    chosen = np.zeros(x.shape[1], np.float32)
    chosen[columns] = 1
    return x @ sp.diags(chosen) if sp.issparse(x) else x * chosen


def product(x: Features, weight: np.ndarray, columns: np.ndarray | slice = slice(None)) -> Matrix:
    """Return $x_J W_J$ $[N, H]$ for some columns J of features $[N, D]$ and weights $[D, H]$."""
    if isinstance(x, ShiftedFeatures):
        offset = x.offset.numpy()[:, columns] @ weight[columns]
        return product(x.x, weight, columns) + _matrix(x.member) @ offset
    return _matrix(x)[:, columns] @ weight[columns]


def _matrix(x: Tensor | SparseMatrix) -> Matrix:
    return to_matrix(x.as_torch if isinstance(x, SparseMatrix) else x)

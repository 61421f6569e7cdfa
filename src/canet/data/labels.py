"""Validation of labels: integers, booleans or strings, some of them unknown."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from canet.data.arrays import as_array, dtype_name
from canet.errors import InputError, first_line

MAX_INTEGER = 2**53
"""Larger integers cannot all be represented as float64."""


class Labels(NamedTuple):
    """Labels $[N]$, and whether each of them is `known` $[N]$; unknown values have no meaning."""

    values: np.ndarray
    known: np.ndarray


def check_labels(y: Any, num_nodes: int, name: str = "y") -> Labels:
    """Return labels $[N]$: integers, booleans or strings; -1, NaN and None mean unknown."""
    values = as_array(y, name)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (num_nodes,):
        hint = f"; convert one-hot rows with {name}.argmax(1)" if values.ndim == 2 else ""
        raise InputError(
            f"{name} has shape {list(values.shape)}, but the graph has {num_nodes:,} nodes: pass "
            f"one label per node, -1 if it is unknown{hint}"
        )
    known = np.ones(num_nodes, dtype=bool)
    if values.dtype == object:
        values, known = _convert_objects(values, name)
    if values.dtype.kind in "Ub":
        return Labels(values, known)
    if values.dtype.kind not in "iuf":
        raise InputError(
            f"{name} contains {dtype_name(values)}, but labels must be integers or strings"
        )
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
    known &= ~np.isnan(values)
    limit = MAX_INTEGER if values.dtype.kind == "f" else 2**63
    wrong = known & ((values >= limit) | (values < -limit) | (values != np.round(values)))
    if wrong.any():
        raise InputError(
            f"Unknown label type: {name} contains {values[wrong][0]:g}, but labels must be "
            "integers or text: choose another column, or divide the numbers into classes"
        )
    values = np.where(known, values, values.dtype.type(0)).astype(np.int64)
    known &= values != -1
    return Labels(np.where(known, values, -1), known)


def _convert_objects(values: np.ndarray, name: str) -> Labels:
    """Convert objects to strings, numbers or booleans; None, NaN and pandas.NA mean unknown."""
    try:
        column = pa.array(values, from_pandas=True)
        if column.type == pa.null():
            column = column.cast(pa.int64())
        filled = column.fill_null(pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(
            f"{name} contains values of different or invalid types ({first_line(error)}): convert "
            "all of them to integers or all to strings"
        ) from error
    known = column.is_valid().to_numpy(zero_copy_only=False)
    return Labels(filled.astype(str) if column.type == pa.string() else filled, known)

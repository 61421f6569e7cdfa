"""Labels as people have them: integers, booleans or strings, some of them unknown."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from canet.data.arrays import as_array, word_for
from canet.errors import InputError

LARGEST_WHOLE = 2**53  # from here on a float skips whole numbers


class Labels(NamedTuple):
    """Labels as they were given; those where `known` $[N]$ is false mean nothing."""

    values: np.ndarray
    known: np.ndarray


def check_labels(y: Any, num_nodes: int, name: str = "y") -> Labels:
    """Labels $[N]$ of integers, booleans or strings; -1, NaN and None are unknown ones."""
    values = as_array(y, name)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (num_nodes,):
        hint = f"; one-hot rows become labels by {name}.argmax(1)" if values.ndim == 2 else ""
        raise InputError(
            f"{name} has shape {list(values.shape)} and the graph {num_nodes:,} nodes: give one "
            f"label per node, -1 where it is unknown{hint}"
        )
    if values.dtype == object:
        return _object_labels(values, name)
    if values.dtype.kind in "Ub":
        return Labels(values, np.ones(num_nodes, dtype=bool))
    if values.dtype.kind not in "iuf":
        raise InputError(f"{name} holds {word_for(values)}: labels are integers or strings")
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
    known = ~np.isnan(values)
    limit = LARGEST_WHOLE if values.dtype.kind == "f" else 2**63
    wrong = known & ((values >= limit) | (values < -limit) | (values != np.round(values)))
    if wrong.any():
        raise InputError(
            f"Unknown label type: {name} holds {values[wrong][0]:g}, which is not a class; labels "
            "are integers or strings (divide a quantity into classes first)"
        )
    values = np.where(known, values, values.dtype.type(0)).astype(np.int64)
    known &= values != -1
    return Labels(np.where(known, values, -1), known)


def _object_labels(values: np.ndarray, name: str) -> Labels:
    """Strings, integers or booleans among which None and NaN are unknown."""
    known = np.array([not _is_missing(value) for value in values], dtype=bool)
    kinds = {_kind_of_label(value, name) for value in values[known]}
    if len(kinds) > 1:
        words = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(f"{name} holds labels of several types ({words}): convert them to one")
    (kind,) = kinds or {int}
    if kind is str:
        return Labels(np.where(known, values, "").astype(str), known)
    plain = np.array([kind(v) if k else kind(-1) for v, k in zip(values, known, strict=True)])
    return Labels(plain, known & (plain != -1) if kind is int else known)


def _is_missing(value: Any) -> bool:
    if type(value).__name__ in ("NAType", "NaTType"):  # of pandas, which may not be installed
        return True
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _kind_of_label(value: Any, name: str) -> type:
    if isinstance(value, bool | np.bool_):
        return bool
    if isinstance(value, str):
        return str
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    if (isinstance(value, int | np.integer) or whole) and abs(int(value)) < 2**63:
        return int
    raise InputError(
        f"{name} holds {str(value)[:40]!r}, which is not a label: they are integers or strings"
    )

"""Validation of labels: integers, booleans or strings, some of them unknown."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from canet.data.arrays import as_array, as_column, dtype_name
from canet.errors import InputError, first_line, listed

RARE = 0.2
"""A class is rare if it has a smaller share of its size with equal classes: of two classes 10 %."""
MIN_SIZE = 5  # a class with fewer labelled nodes gets a warning
MAX_INTEGER = 2**53  # larger integers cannot all be represented as float64


class Labels(NamedTuple):
    """Sorted `names` $[C]$ of classes, and `codes` $[N]$ among them; -1 if a label is unknown."""

    names: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, names: Sequence[Any], codes: np.ndarray) -> Self:
        """Return the labels with these codes among names in any order."""
        distinct, number = np.unique(np.array(names), return_inverse=True)
        if np.array_equal(number, np.arange(len(names))):
            return cls(distinct, codes)
        return cls(distinct, np.append(number, -1)[codes])

    def codes_in(self, names: np.ndarray) -> Tensor:
        """Return the codes $[N]$ among other names $[m]$; -1 also if a name is not among them."""
        place = {name: number for number, name in enumerate(names.tolist())}
        codes = [place.get(name, -1) for name in self.names.tolist()]
        return torch.from_numpy(np.array([*codes, -1])[self.codes])


def label_notes(labels: Labels, metric: str = "accuracy") -> list[str]:
    """Return a message for labels that look the same, and for a rare class if accuracy is used."""
    notes, same = [], dict[str, list[str]]()
    for name in labels.names.tolist() if labels.names.dtype.kind == "U" else []:
        same.setdefault(" ".join(name.casefold().split()), []).append(repr(name))
    if alike := [names for names in same.values() if len(names) > 1]:
        notes.append(
            f"the labels {listed(alike[0])} differ only in capital letters or spaces: if they are "
            "one class, write them in the same way"
        )
    sizes = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.names))
    if metric == "accuracy" and len(sizes) > 1 and min(sizes) < RARE * sum(sizes) / len(sizes):
        name, share = labels.names[sizes.argmin()], min(sizes) / sum(sizes)
        better = "average_precision" if len(sizes) == 2 else "macro_f1"
        notes.append(
            f"class '{name}' has {share:.1%} of the labels, and accuracy hardly depends on it: if "
            f"it matters, use metric='{better}' (--metric {better})"
        )
    few = [f"{n} ({size})" for n, size in zip(labels.names, sizes, strict=True) if size < MIN_SIZE]
    if few:
        notes.append(f"classes with fewer than {MIN_SIZE} labelled nodes: {listed(few)}")
    return notes


def check_labels(y: object, num_nodes: int, name: str = "y") -> Labels:
    """Return labels: integers, booleans or strings $[N]$; -1, NaN and None mean unknown."""
    if isinstance(y, Labels):
        return y
    values, known = check_values(y, num_nodes, name)
    names, numbers = np.unique(values[known], return_inverse=True)
    codes = np.full(num_nodes, -1)
    codes[known] = numbers
    return Labels(names, codes)


def check_values(y: object, num_nodes: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return labels $[N]$ and a mask $[N]$ of the known ones; other values have no meaning."""
    values = as_array(y, name)
    hint = f"; convert one-hot rows with {name}.argmax(1)" if values.ndim == 2 else ""
    values = as_column(values, name, num_nodes, f"label per node, -1 if it is unknown{hint}")
    known = np.ones(num_nodes, dtype=bool)
    if values.dtype == object:
        values, known = _convert_objects(values, name)
    if values.dtype.kind in "Ub":
        return values, known
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
    return np.where(known, values, -1), known


def _convert_objects(values: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
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
    return filled.astype(str) if column.type == pa.string() else filled, known

"""What people bring as numbers: tensors, numpy arrays and lists, made one kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from canet.errors import InputError


def as_tensor(values: Any, name: str) -> Tensor:
    """A tensor of numbers on the CPU, without history; `name` is what messages call it."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = as_array(values, name)
    if array.dtype.kind not in "iufcb" or array.dtype.itemsize > 16:
        raise InputError(f"{name} holds {word_for(array)}: it must hold numbers")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    try:
        return torch.from_numpy(np.array(array))
    except TypeError:
        raise InputError(f"{name} holds {array.dtype}, which torch does not know") from None


def as_array(values: Any, name: str) -> np.ndarray:
    """A numpy array with at least one axis; `name` is what messages call it."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.layout != torch.strided:
            raise InputError(f"{name} is a sparse tensor: give a dense one")
        values = values.float() if values.dtype == torch.bfloat16 else values
        return np.asarray(values.numpy())
    if isinstance(values, str | bytes | dict) or np.isscalar(values):
        raise InputError(f"{name} is {str(values)[:40]!r}: give one entry a node")
    try:
        array = np.asarray(values)
        if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
            array = np.asarray(values, dtype=object)  # numpy writes None and NaN as strings
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name} is ragged: give one entry a node, all of one kind") from None
    if array.ndim == 0:
        raise InputError(f"{name} is a {type(values).__name__}: give a tensor or an array")
    return array


def kind_of(tensor: Tensor) -> str:
    """The type of its numbers, in a word."""
    return str(tensor.dtype).removeprefix("torch.")


def word_for(array: np.ndarray) -> str:
    """What an array holds, in a word."""
    return "text" if array.dtype.kind in "USO" else str(array.dtype)

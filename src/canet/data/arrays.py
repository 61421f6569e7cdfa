"""Numbers and labels as people bring them (tensors, numpy arrays, lists), made one kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from canet.errors import InputError


def as_tensor(values: Any, name: str) -> Tensor:
    """A dense tensor of numbers on the CPU, without history; `name` is what messages call it."""
    if isinstance(values, Tensor):
        _check_dense(values, name)
        return values.detach().cpu()
    array = as_array(values, name)
    if array.dtype.kind not in "iufb":
        raise InputError(f"{name} holds {word_for(array)}: it must hold numbers")
    if array.dtype.itemsize > 8:  # long doubles, which torch does not know
        array = array.astype(np.float64)
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("=")))


def as_array(values: Any, name: str) -> np.ndarray:
    """A numpy array with at least one axis; `name` is what messages call it."""
    if isinstance(values, Tensor):
        _check_dense(values, name)
        small = values.dtype.is_floating_point and values.dtype.itemsize < 4
        return np.asarray((values.float() if small else values).numpy(force=True))
    if isinstance(values, str | bytes | dict) or np.isscalar(values):
        raise InputError(f"{name} is {str(values)[:40]!r}: give a tensor, an array or a list")
    if np.ma.is_masked(values):
        raise InputError(f"{name} is a masked array: replace the masked entries with .filled(…)")
    try:
        array = np.asarray(values)
        text = array.dtype.kind == "U" and not isinstance(values, np.ndarray)
        if text or array.dtype.kind == "T":
            array = np.asarray(values, dtype=object)  # numpy writes None and NaN as strings
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise InputError(f"{name} is ragged: give one entry per node, all of one kind") from error
    if array.ndim == 0:
        raise InputError(f"{name} is a {type(values).__name__}: give a tensor or an array")
    return array


def word_for(array: np.ndarray) -> str:
    """What an array holds, in a word."""
    return {"U": "text", "S": "bytes", "O": "text or objects"}.get(
        array.dtype.kind, str(array.dtype)
    )


def _check_dense(tensor: Tensor, name: str) -> None:
    if tensor.layout != torch.strided:
        raise InputError(f"{name} is a sparse tensor: give a dense one")

"""Convert tensors, numpy arrays and lists to one type."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from canet.errors import InputError


def as_tensor(values: object, name: str) -> Tensor:
    """Return a dense numeric tensor on the CPU; `name` is its name in error messages."""
    if isinstance(values, Tensor):
        _check_dense(values, name)
        return values.detach().cpu()
    array = as_array(values, name)
    if array.dtype.kind not in "iufb":
        raise InputError(f"{name} contains {dtype_name(array)}, but it must contain numbers")
    if array.dtype.itemsize > 8:  # torch has no long double
        array = array.astype(np.float64)
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("=")))


def as_array(values: object, name: str) -> np.ndarray:
    """Return a numpy array with at least one axis; `name` is its name in error messages."""
    if isinstance(values, Tensor):
        _check_dense(values, name)
        is_half = values.dtype.is_floating_point and values.dtype.itemsize < 4
        return np.asarray((values.float() if is_half else values).numpy(force=True))
    if isinstance(values, str | bytes | dict) or np.isscalar(values):
        raise InputError(f"{name} is {str(values)[:40]!r}: pass a tensor, an array or a list")
    if np.ma.is_masked(values):
        raise InputError(f"{name} is a masked array: replace the masked entries with .filled(…)")
    try:
        array = np.asarray(values)
        is_text = array.dtype.kind == "U" and not isinstance(values, np.ndarray)
        if is_text or array.dtype.kind == "T":
            array = np.asarray(values, dtype=object)  # numpy converts None and NaN to strings
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise InputError(
            f"{name} cannot be converted to an array, because its rows have different lengths or "
            "types: pass one entry of the same type for each node"
        ) from error
    if array.ndim == 0:
        raise InputError(f"{name} is a {type(values).__name__}: pass a tensor, an array or a list")
    return array


def as_column(
    values: Tensor | np.ndarray, name: str, count: int, entry: str, of: str = "nodes"
) -> Any:
    """Return values $[n]$ or $[n, 1]$ as $[n]$, one `entry` for each of the n nodes or edges."""
    if values.shape == (count, 1):
        return values[:, 0]
    if values.shape != (count,):
        raise InputError(
            f"{name} has shape {list(values.shape)}, the graph has {count:,} {of}: pass one {entry}"
        )
    return values


def dtype_name(array: np.ndarray) -> str:
    """Name of the type of an array's entries in error messages."""
    names = {"U": "text", "S": "bytes", "O": "text or objects"}
    return names.get(array.dtype.kind, str(array.dtype))


def _check_dense(tensor: Tensor, name: str) -> None:
    if tensor.layout != torch.strided:
        raise InputError(f"{name} is a sparse tensor: convert it with .to_dense()")

"""Named arrays in `.npz` and `.pt` files, opened so that no file can run code.

A `.npz` is read without pickles, a `.pt` with `weights_only=True` and only tensors and PyG's `Data`
allowed.
"""

from __future__ import annotations

import pickle
import re
import struct
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from canet.errors import InputError, first_line
from canet.util.files import check_regular
from canet.util.memory import check_memory

UNREADABLE = (
    *(OSError, EOFError, MemoryError, SyntaxError, tokenize.TokenError, struct.error, zlib.error),
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError),
    *(zipfile.BadZipFile, pickle.UnpicklingError, AssertionError),
)
"""What zipfile, numpy and torch raise for bytes that they cannot read."""


def open_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file by name: numpy arrays of a `.npz`, what a `Data` has of a `.pt`."""
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:  # which both are
            size = sum(member.file_size for member in archive.infolist())
        check_memory(size, f"'{path}'")
        return _npz_arrays(path) if path.suffix == ".npz" else _data_attributes(path)
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"'{path}' cannot be read ({first_line(error)}): write the file again"
        ) from error


def _npz_arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        arrays = {}
        for name in file.files:
            try:
                arrays[name] = file[name]
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
                raise InputError(
                    f"{name} of '{path}' contains Python objects, which are not opened: write "
                    "numbers, or strings with dtype=str"
                ) from error
        return arrays


def _data_attributes(path: Path) -> dict[str, Any]:
    """What the PyG `Data` in a `.pt` file has, by name."""
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    allowed = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        name = re.search(r"(?:GLOBAL|global|class|function) '?(\w+\.[\w.]+)", str(error))
        raise InputError(
            f"'{path}' is not opened, because it contains {name[1] if name else 'other objects'}: "
            "save a PyG Data with tensors only (of a HeteroData, what to_homogeneous() gives), or "
            "write a .npz"
        ) from error
    if type(content) is not Data:
        raise InputError(
            f"'{path}' contains a {type(content).__name__}, not a PyG Data: save a Data, such as "
            "dataset[0] of an InMemoryDataset"
        )
    return {name: value for name, value in content.to_dict().items() if value is not None}

"""Read named arrays from `.npz` and `.pt` files without running code from the file.

A `.npz` file is read without pickle. A `.pt` file is read with `weights_only=True` and may contain
only tensors and PyG's `Data`.
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
"""Exceptions of zipfile, numpy and torch for files that they cannot read."""


def open_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of a file by name: arrays of a `.npz`, attributes of the `Data` of a `.pt`.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:  # .npz and .pt files are zip archives
            size = sum(member.file_size for member in archive.infolist())
        check_memory(size, f"'{path}'")
        return _npz_arrays(path) if path.suffix == ".npz" else _data_attributes(path)
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"'{path}' cannot be read ({first_line(error)}): save it again with numpy.savez or "
            "torch.save"
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
                    f"array '{name}' of '{path}' contains Python objects, which are not read for "
                    "security: save numbers, or strings with dtype=str"
                ) from error
        return arrays


def _data_attributes(path: Path) -> dict[str, Any]:
    """Return the attributes of the PyG `Data` in a `.pt` file by name."""
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
            f"'{path}' contains {name[1] if name else 'other objects'}, which is not read for "
            "security: save a PyG Data with tensors only (convert a HeteroData with "
            "to_homogeneous()), or a .npz file"
        ) from error
    if type(content) is not Data:
        raise InputError(
            f"'{path}' contains a {type(content).__name__}, not a PyG Data: save a single graph, "
            "such as dataset[0]"
        )
    return {name: value for name, value in content.to_dict().items() if value is not None}

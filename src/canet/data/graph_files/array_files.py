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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from canet.errors import InputError, first_line
from canet.util.memory import free_memory

UNREADABLE = (
    *(OSError, EOFError, MemoryError, SyntaxError, tokenize.TokenError, struct.error, zlib.error),
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError),
    *(zipfile.BadZipFile, pickle.UnpicklingError, AssertionError),
)
"""What zipfile, numpy and torch raise for bytes that they cannot read."""
LONGEST_ERROR = 4000
"""Of torch's errors, which quote what they found."""


def open_arrays(path: Path) -> Mapping[str, Any]:
    """The arrays of a file by name: numpy arrays of a `.npz`, what a `Data` has of a `.pt`."""
    return NpzFile(path) if path.suffix == ".npz" else _data_attributes(path)


def check_memory(size: int, what: str) -> None:
    """Refuse `what` if its `size` in bytes is more than the memory that is free."""
    free = free_memory()
    if free is not None and size > free:
        raise InputError(
            f"{what} takes {size / 2**30:,.1f} GiB and {free / 2**30:,.1f} GiB of memory are free: "
            "use a smaller graph, or more memory"
        )


class NpzFile(Mapping[str, np.ndarray]):
    """The arrays of a `.npz` file, each read when it is used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sizes = {n.removesuffix(".npy"): size for n, size in _member_sizes(path).items()}

    def __getitem__(self, name: str) -> np.ndarray:
        check_memory(self._sizes[name], f"{name} of '{self._path}'")
        try:
            with np.load(self._path, allow_pickle=False) as arrays:
                return np.asarray(arrays[name])
        except UNREADABLE as error:
            if "allow_pickle" in str(error):
                raise InputError(
                    f"{name} of '{self._path}' contains Python objects, which are not opened: "
                    "write numbers, or strings with dtype=str"
                ) from error
            raise _cannot_read(self._path, error) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)


def _data_attributes(path: Path) -> dict[str, Any]:
    """What the PyG `Data` in a `.pt` file has, by name."""
    check_memory(sum(_member_sizes(path).values()), f"'{path}'")
    allowed = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
        found = content.to_dict() if type(content) is Data else None
    except UNREADABLE as error:
        raise _not_opened(path, error) from error
    if found is None:
        is_pair = isinstance(content, tuple)
        fix = "of an InMemoryDataset, save dataset[0]" if is_pair else "save a Data"
        raise InputError(f"'{path}' contains a {type(content).__name__}, not a PyG Data: {fix}")
    for name, value in found.items():
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            check_memory(value.numel() * value.element_size(), f"{name} of '{path}'")
    return {str(name): value for name, value in found.items() if value is not None}


def _member_sizes(path: Path) -> dict[str, int]:
    """The files in a zip archive, which `.npz` and `.pt` files are, with their size in bytes."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {member.filename: member.file_size for member in archive.infolist()}
    except UNREADABLE as error:
        raise _cannot_read(path, error) from error


def _cannot_read(path: Path, error: BaseException) -> InputError:
    return InputError(f"'{path}' cannot be read ({first_line(error)}): write the file again")


def _not_opened(path: Path, error: BaseException) -> InputError:
    said = str(error)[:LONGEST_ERROR]
    name = re.search(r"(?:GLOBAL|global|class|function) '?([\w.]{1,200}\.[\w.]{1,200})", said)
    if name is None and not said.startswith("Weights only load failed"):
        return _cannot_read(path, error)
    what = "more than tensors" if name is None else f"'{name[1]}'"
    fix = "save a PyG Data with tensors only, or write a .npz"
    if name is not None and name[1].startswith("torch_geometric"):
        fix = "save a plain Data; of a HeteroData, what to_homogeneous() gives"
    return InputError(f"'{path}' is not opened, because it contains {what}: {fix}")

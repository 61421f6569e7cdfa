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
BEFORE_ARCHIVES = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How files begin that torch wrote before it wrote archives."""
LONGEST_ERROR = 4000
"""Of torch's errors, which quote what they found."""


def open_arrays(path: Path) -> Mapping[str, Any]:
    """The arrays of a file by name: numpy arrays of a `.npz`, what a `Data` has of a `.pt`."""
    return NpzFile(path) if path.suffix == ".npz" else _pt_attributes(path)


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
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except UNREADABLE as error:
            raise _cannot_read(path, error) from error
        self._sizes = {m.filename.removesuffix(".npy"): m.file_size for m in members}

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


def _pt_attributes(path: Path) -> dict[str, Any]:
    """What the PyG `Data` in a `.pt` file has, by name."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
        else:
            size = path.stat().st_size
            with path.open("rb") as file:  # torch takes long to give up on other files
                if file.read(len(BEFORE_ARCHIVES)) != BEFORE_ARCHIVES:
                    raise InputError(
                        f"'{path}' cannot be read (torch.save did not write it): save a PyG Data"
                    )
    except (OSError, zipfile.BadZipFile) as error:
        raise _cannot_read(path, error) from error
    check_memory(size, f"'{path}'")
    allowed = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise _not_opened(path, error) from error
    if type(held) is not Data:
        fix = "of an InMemoryDataset, save dataset[0]" if isinstance(held, tuple) else "save a Data"
        raise InputError(f"'{path}' contains a {type(held).__name__}, not a PyG Data: {fix}")
    try:
        found = {str(name): value for name, value in held.to_dict().items() if value is not None}
    except UNREADABLE as error:
        raise _cannot_read(path, error) from error
    for name, value in found.items():
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            check_memory(value.numel() * value.element_size(), f"{name} of '{path}'")
    return found


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

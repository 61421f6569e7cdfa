"""Named arrays in `.npz` and `.pt` files, opened so that no file can run code.

A `.npz` is read without pickles, a `.pt` with `weights_only=True` and nothing allowed besides
tensors and PyG's `Data`. Sizes are compared with the free memory before anything is unpacked.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from canet.data.graph_files.chunks import check_memory
from canet.errors import InputError, first_line

OLD_FILES = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How files begin that torch wrote before it wrote archives."""
LONGEST_COMPLAINT = 4000
"""Of torch's, which quote what they found."""


def open_arrays(path: Path) -> Mapping[str, Any]:
    """The arrays of a file by name: numpy arrays of a `.npz`, what a `Data` has of a `.pt`."""
    return NpzFile(path) if path.suffix == ".npz" else _attributes(path)


class NpzFile(Mapping[str, np.ndarray]):
    """Arrays that are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except Exception as error:  # what is damaged fails in many ways
            raise self._damaged(error) from error
        self._members = {m.filename.removesuffix(".npy"): m for m in members}

    def __getitem__(self, name: str) -> np.ndarray:
        member = self._members[name]
        check_memory(member.file_size, f"{name} of '{self._path}'")
        try:
            return self._read(member)
        except Exception as error:  # zipfile's, zlib's and numpy's errors are many
            raise self._damaged(error, f"{name} of ") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def _read(self, member: zipfile.ZipInfo) -> np.ndarray:
        form = np.lib.format
        with zipfile.ZipFile(self._path) as archive:
            with archive.open(member) as file:
                first = form.read_magic(file) == (1, 0)
                header = form.read_array_header_1_0 if first else form.read_array_header_2_0
                shape, _, dtype = header(file)
            if np.prod(shape, dtype=np.float64) * dtype.itemsize > member.file_size:
                raise ValueError("it is cut short")
            with archive.open(member) as file:
                return form.read_array(file, allow_pickle=False)

    def _damaged(self, error: Exception, place: str = "") -> InputError:
        if isinstance(error, ValueError) and "allow_pickle" in str(error):
            return InputError(
                f"{place}'{self._path}' holds Python objects, which are not opened: write numbers, "
                "or strings with dtype=str"
            )
        return InputError(
            f"{place}'{self._path}' cannot be read ({first_line(error)}): write it again"
        )


def _attributes(path: Path) -> dict[str, Any]:
    """What the PyG `Data` in a `.pt` file has, by name."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except Exception as error:  # an old file, which is no archive, or a damaged one
        if not _is_old(path):
            raise InputError(
                f"'{path}' cannot be read (torch.save did not write it): save a PyG Data again"
            ) from error
        size = path.stat().st_size
    check_memory(size, f"'{path}'")
    allowed = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what is damaged fails in many ways
        raise _not_opened(path, error) from error
    if type(held) is not Data:
        mend = (
            "of an InMemoryDataset, save dataset[0]" if isinstance(held, tuple) else "save a Data"
        )
        raise InputError(f"'{path}' holds a {type(held).__name__}, not a PyG Data: {mend}")
    try:
        return {str(name): value for name, value in held.to_dict().items() if value is not None}
    except Exception as error:  # a Data with anything inside
        raise InputError(f"'{path}' holds a damaged PyG Data: save it again") from error


def _is_old(path: Path) -> bool:
    """Whether torch wrote a file before it wrote archives; its complaints of others take long."""
    with path.open("rb") as file:
        return file.read(len(OLD_FILES)) == OLD_FILES


def _not_opened(path: Path, error: Exception) -> InputError:
    said = str(error)[:LONGEST_COMPLAINT]
    name = re.search(r"(?:GLOBAL|global|class|function) '?([\w.]{1,200}\.[\w.]{1,200})", said)
    if name is None and said.startswith("Weights only load failed"):
        return InputError(
            f"'{path}' is not opened, for it holds more than tensors: save a PyG Data that has "
            "tensors only, or write a .npz"
        )
    if name is None:
        return InputError(f"'{path}' cannot be read ({first_line(error)}): save a PyG Data again")
    if name[1].startswith("numpy"):
        return InputError(f"'{path}' holds numpy arrays: turn them into tensors, or write a .npz")
    if name[1].startswith("torch_geometric"):
        return InputError(
            f"'{path}' holds another class of PyG than Data ('{name[1]}'): save a plain Data; of a "
            "HeteroData, what to_homogeneous() gives"
        )
    return InputError(
        f"'{path}' is not opened, for it names '{name[1]}': save a PyG Data that has tensors only, "
        "or write a .npz"
    )

"""Malicious and invalid files by name: with code, with false sizes, or incomplete."""

from __future__ import annotations

import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

HUGE = 2**60


class Trap:
    """An object that creates a file when it is unpickled, which proves that code was run."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


def hostile_files(canary: Path) -> dict[str, bytes]:
    """Name → content of each file; `canary` is created if code in a file is run."""
    return {**_texts(), **_pickles(canary), **_arrays(canary), **_tensors(), **_archives(canary)}


def _texts() -> dict[str, bytes]:
    deep = 100_000
    return {
        "empty": b"",
        "all bytes": bytes(range(256)) * 8,
        "JSON: list": b"[]",
        "JSON: empty object": b"{}",
        "JSON: deep": b'{"a":' * deep + b"1" + b"}" * deep,
        "JSON: incomplete": b'{"settings": {"hidden": 3',
        "CSV: an open quote": b'id,x\n1,"a' + b"\nb" * 1000,
        "CSV: numbers": b"source,target\n1e308,-1e308\nnan,inf\n" + b"9" * 400 + b",0x10\n",
    }


def _pickles(canary: Path) -> dict[str, bytes]:
    trap = Trap(canary)
    found = {f"pickle, protocol {n}": pickle.dumps(trap, protocol=n) for n in (0, 2, 5)}
    code = f"__import__('pathlib').Path('{canary}').touch()"
    found["pickle: builtins"] = f"cbuiltins\neval\n(V{code}\ntR.".encode()
    found["pickle: length"] = b"\x80\x04\x8e" + struct.pack("<Q", HUGE)
    x, edges = torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]])
    for name, held in {"trap": trap, "Data": Data(x=x, edge_index=edges, y=trap)}.items():
        for kind, is_zip in (("pt", True), ("old pt", False)):
            buffer = io.BytesIO()
            torch.save(held, buffer, _use_new_zipfile_serialization=is_zip)
            found[f"{kind}: {name}"] = buffer.getvalue()
    return found


def _arrays(canary: Path) -> dict[str, bytes]:
    edges, objects = _npy(np.array([[0, 1], [1, 2]])), np.array([Trap(canary)], dtype=object)
    sound = {"x.npy": _npy(np.ones((3, 2), dtype=np.float32)), "edge_index.npy": edges}
    claim = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({HUGE}, 8)}}\n"
    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(claim)) + claim.encode()
    found = {
        "npz: objects": _npz({**sound, "y.npy": _npy(objects)}),
        "npz: false size": _npz({**sound, "x.npy": header}),
        "npz: outside": _npz({**sound, "../../evil.npy": edges, "/evil.npy": edges}),
    }
    return found | {"npz: incomplete": found["npz: outside"][:-100]}


def _npz(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _npy(values: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


def _tensors() -> dict[str, bytes]:
    """safetensors files with a wrong header."""

    def file(length: int, shape: list[int], offsets: list[int]) -> bytes:
        header = {"w": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}
        text = json.dumps(header).encode()
        return struct.pack("<Q", length or len(text)) + text + b"\0" * 16

    return {
        "safetensors: length": file(HUGE, [4], [0, 16]),
        "safetensors: false size": file(0, [HUGE, 8], [0, 16]),
        "safetensors: offsets": file(0, [4], [0, HUGE]),
        "safetensors: other tensors": file(0, [4], [0, 16]),
    }


def _archives(canary: Path) -> dict[str, bytes]:
    def tar(*members: tuple[str, bytes, str]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:xz", preset=0) as archive:
            for name, kind, target in members:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, target
                info.size = 3 if kind == tarfile.REGTYPE else 0
                archive.addfile(info, io.BytesIO(b"own"))
        return buffer.getvalue()

    file, link = tarfile.REGTYPE, tarfile.SYMTYPE
    return {
        "tar: absolute": tar((str(canary), file, "")),
        "tar: above": tar(("a/../../" + canary.name, file, "")),
        "tar: link": tar(("link", link, str(canary)), ("link", file, "")),
        "tar: link above": tar(("link", link, ".."), (f"link/{canary.name}", file, "")),
        "tar: incomplete": tar(("run/config.json", file, ""))[:-20],
        "xz": lzma.compress(b"\0" * 2**20, preset=0),
    }

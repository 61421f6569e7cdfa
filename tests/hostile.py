"""Files as an attacker, a broken disk or a slip of the hand makes them, by a name each."""

from __future__ import annotations

import gzip
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
    """Unpickling it makes a file: proof that code of the file was run."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


def hostile_files(canary: Path) -> dict[str, bytes]:
    """The contents; `canary` is made by whoever runs what some of them hold."""
    return {
        **_texts(),
        **_pickles(canary),
        **_arrays(canary),
        **_parquet(),
        **_safetensors(),
        **_archives(canary),
    }


def _texts() -> dict[str, bytes]:
    deep = 100_000
    return {
        "nothing": b"",
        "one NUL": b"\0",
        "NULs": b"\0" * 4096,
        "all bytes": bytes(range(256)) * 8,
        "UTF-16": "id,x\n1,2\n".encode("utf-16"),
        "a lone surrogate": b"id,\xed\xa0\x80\n1,2\n",
        "JSON: list": b"[]",
        "JSON: null": b"null",
        "JSON: number": b"1e400",
        "JSON: NaN": b"NaN",
        "JSON: text": b'"text"',
        "JSON: nothing inside": b"{}",
        "JSON: deep lists": b"[" * deep + b"]" * deep,
        "JSON: deep objects": b'{"a":' * deep + b"1" + b"}" * deep,
        "JSON: digits": b'{"settings": {"hidden": ' + b"9" * 10_000 + b"}}",
        "JSON: large": json.dumps({"settings": {str(i): i for i in range(20_000)}}).encode(),
        "JSON: cut": b'{"settings": {"hidden": 3',
        "JSON: keys": b'{"__class__": "os.system", "__reduce__": ["touch", "x"]}',
        "CSV: a huge cell": b"id,x\n1," + b"a" * 300_000 + b"\n",
        "CSV: an open quote": b'id,x\n1,"a' + b"\nb" * 1000,
        "CSV: quotes": b'"id""",""\n"""","""\n',
        "CSV: NUL in a cell": b"id,x\n1,a\0b\n",
        "CSV: formulas": b"id,x\n=cmd|' /C calc'!A0,@SUM(1+1)\n+1,-2\n",
        "CSV: columns": b",".join(b"c%d" % i for i in range(5000)) + b"\n",
        "CSV: numbers": b"source,target\n1e308,-1e308\nnan,inf\n" + b"9" * 400 + b",0x10\n",
        "CSV: negative": b"source,target\n-1,-1\n",
        "CSV: carriage returns": b"id,x\r1,2\r\r3,4\r",
        "CSV: escapes": b"id,x\n\x1b]0;title\x07,\x1b[2J\n",
        "HTML": b"<script>alert(1)</script>",
    }


def _pickles(canary: Path) -> dict[str, bytes]:
    trap = Trap(canary)
    found = {
        f"pickle, protocol {number}": pickle.dumps(trap, protocol=number) for number in (0, 2, 5)
    }
    code = f"__import__('pathlib').Path('{canary}').touch()"
    found["pickle: builtins"] = f"cbuiltins\neval\n(V{code}\ntR.".encode()
    found["pickle: stack"] = b"(" * 10_000 + b"."
    found["pickle: length"] = b"\x80\x04\x8e" + struct.pack("<Q", HUGE)
    x, edges = torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]])
    for name, held in {
        "trap": trap,
        "Data with a trap": Data(x=x, edge_index=edges, y=trap),
        "repeated": Data(x=torch.ones(1).expand(2**20, 2**20), edge_index=edges),
        "list": [x],
        "text": "graph",
    }.items():
        for kind, is_zip in (("pt", True), ("old pt", False)):
            buffer = io.BytesIO()
            torch.save(held, buffer, _use_new_zipfile_serialization=is_zip)
            found[f"{kind}: {name}"] = buffer.getvalue()
    return found


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


def _header(text: str) -> bytes:
    """An array of numpy with nothing behind its header."""
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text.encode()


def _arrays(canary: Path) -> dict[str, bytes]:
    edges = _npy(np.array([[0, 1], [1, 2]]))
    claims = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({HUGE}, 8)}}\n"
    sound = {"x.npy": _npy(np.ones((3, 2), dtype=np.float32)), "edge_index.npy": edges}
    objects = np.array([Trap(canary)], dtype=object)
    found = {
        "npz: objects": _npz({**sound, "y.npy": _npy(objects), "x.npy": _npy(objects)}),
        "npz: no arrays": _npz({"x.npy": b"", "edge_index.npy": b"x"}),
        "npz: claims too much": _npz({**sound, "x.npy": _header(claims)}),
        "npz: code in the header": _npz(
            {**sound, "x.npy": _header("__import__('os').system('touch x')\n")}
        ),
        "npz: long header": _npz({**sound, "x.npy": _header("(" * 50_000)}),
        "npz: outside": _npz({**sound, "../../evil.npy": edges, "/evil.npy": edges}),
        "npz: bomb": _npz({**sound, "x.npy": _npy(np.zeros((2**20, 4)))}),
        "npz: wide sparse": _npz(
            {
                "edge_index.npy": edges,
                "x_data.npy": _npy(np.ones(1)),
                "x_indices.npy": _npy(np.array([2**40])),
                "x_indptr.npy": _npy(np.array([0, 1])),
                "x_shape.npy": _npy(np.array([1, 2**50])),
            }
        ),
        "npz: encoding": _npz({**sound, "encoding.npy": _npy(np.array("[" * 100_000))}),
        "npz: edges out of range": _npz({**sound, "edge_index.npy": _npy(np.full((2, 3), HUGE))}),
        "npy": _npy(np.ones(3)),
    }
    cut = found["npz: bomb"]
    return found | {"npz: cut": cut[: len(cut) // 2], "npz: no directory": cut[:-100]}


def _parquet() -> dict[str, bytes]:
    pa = __import__("pyarrow")
    pq = __import__("pyarrow.parquet").parquet
    deep = pa.int64()
    for _ in range(30):
        deep = pa.list_(deep)
    columns = {
        "nested": pa.array([[1], [2, 3]]),
        "structs": pa.array([{"a": 1}, {"a": 2}]),
        "deep": pa.array([None, None], deep),
        "large integers": pa.array([2**64 - 1, 0], pa.uint64()),
        "decimals": pa.array([None, None], pa.decimal256(76, 0)),
        "bytes": pa.array([b"\xff\xfe", b"\0"]),
        "instants": pa.array([2**62, -(2**62)], pa.timestamp("us")),
        "text": pa.array(["\0" * 1000, "=1+1"]),
        "dictionary": pa.array(["a", "b"]).dictionary_encode(),
        "nulls": pa.nulls(2),
    }
    found = {}
    for name, column in columns.items():
        buffer = io.BytesIO()
        pq.write_table(pa.table({"id": [0, 1], "x": column, "source": column}), buffer)
        found[f"Parquet: {name}"] = buffer.getvalue()
    sound = found["Parquet: dictionary"]
    footer = len(sound) - 8
    return found | {
        "Parquet: lying footer": sound[:footer] + struct.pack("<I", 2**31 - 1) + b"PAR1",
        "Parquet: cut": sound[: len(sound) // 2],
        "Parquet: other footer": sound[: footer - 60] + bytes(60) + sound[footer:],
    }


def _safetensors() -> dict[str, bytes]:
    def file(header: Any, length: int | None = None, data: bytes = b"\0" * 16) -> bytes:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    def one(shape: Any, offsets: Any, dtype: str = "F32") -> dict[str, Any]:
        return {"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}

    return {
        "safetensors: length": file({}, HUGE),
        "safetensors: longest": file({}, 2**64 - 1),
        "safetensors: deep": file(b"[" * 100_000),
        "safetensors: claims too much": file(one([HUGE, 8], [0, 16])),
        "safetensors: offsets beyond": file(one([4], [0, HUGE])),
        "safetensors: offsets back": file(one([4], [16, 0])),
        "safetensors: negative": file(one([-4], [0, 16])),
        "safetensors: other type": file(one([4], [0, 16], "EVIL")),
        "safetensors: overlap": file({**one([4], [0, 16]), "v": one([4], [0, 16])["w"]}),
        "safetensors: other tensors": file(one([4], [0, 16])),
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

    outside = str(canary)
    return {
        "tar: absolute": tar((outside, tarfile.REGTYPE, "")),
        "tar: above": tar(("a/../../" + canary.name, tarfile.REGTYPE, "")),
        "tar: link": tar(("link", tarfile.SYMTYPE, outside), ("link", tarfile.REGTYPE, "")),
        "tar: link above": tar(
            ("link", tarfile.SYMTYPE, ".."), (f"link/{canary.name}", tarfile.REGTYPE, "")
        ),
        "tar: hard link": tar(("link", tarfile.LNKTYPE, "/etc/passwd")),
        "tar: device": tar(("done", tarfile.CHRTYPE, "")),
        "tar: pipe": tar(("run/done", tarfile.FIFOTYPE, "")),
        "tar: only a marker": tar(("run/done", tarfile.REGTYPE, "")),
        "tar: nothing": tar(),
        "xz": lzma.compress(b"\0" * 2**20, preset=0),
        "xz: cut": tar(("run/done", tarfile.REGTYPE, ""))[:-20],
        "gzip": gzip.compress(b"\0" * 2**20),
        "gzip: cut": gzip.compress(bytes(range(256)) * 99)[:-9],
        "gzip: flipped": gzip.compress(b"1,2\n" * 999)[:12] + b"\xff" * 20,
        "gzip: CSV": gzip.compress(b"1,2\n-1,9999999999999999999999\n"),
        "zip: outside": _npz({"../evil": b"x", "/evil": b"x"}),
    }


def hostile_entries(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Changes to what the model.json of a fitted model says that make it no model's."""

    def param(**changes: Any) -> dict[str, Any]:
        return {"params": content["params"] | changes}

    def moved(*columns: Any, share: Any = None) -> dict[str, Any]:
        shares = [0.5] * len(columns) if share is None else share
        return {"findings": {"num_columns": 5, "moved_columns": [*columns], "share": shares}}

    return {
        **{
            f"classes: {classes!r:.40}": {"classes": classes}
            for classes in (
                None,
                [],
                ["a"],
                ["a", "b"],
                ["a", "a", "b"],
                ["c", "b", "a"],
                [["a"], ["b"], ["c"]],
                ["a", "b", None],
                [0, 1, "a"],
                [0, 1, True],
                [0.5, 1.5, 2.5],
                [0, 1, 10**30],
                ["a", "b", "\ud800"],
                {"a": 0, "b": 1, "c": 2},
                "abc",
            )
        },
        **{
            f"{name}: {value!r:.40}": {name: value}
            for name, values in {
                "scores": (
                    None,
                    [1],
                    {},
                    *({"train": 1, "valid": wrong} for wrong in ("x", None, [1], -5, 1e300)),
                ),
                "history": (None, [], {"loss": None}, {"loss": ["x"]}, {"loss": 3}),
                "selected_epoch": (None, "x", -1, 1.5, True),
                "environments_seen": (5, "north", [1], {}),
                "num_features": (None, 0, -1, 4, 5.0, 10**18, 10**30, True),
                "num_environment_labels": (None, -3, "x", 10**30, 1.5),
                "settings": (None, [], {"hidden": 9}, {"hidden": 10**9}, {"nonsense" * 999: 1}),
                "params": (None, [], {}, "x"),
                "findings": (None, [], "x", 3, {"moved_columns": None}, {"share": [0.5]}),
                "encoding": ([], "x", {}, {"columns": []}),
            }.items()
            for value in values
        },
        **{
            f"{name}={value!r:.40}": param(**{name: value})
            for name, values in {
                "metric": ("zzz", None, ["accuracy"], "roc_auc"),
                "random_state": (-1, 2**32, "x", 1.5, []),
                "method": (None, 3, "gone", ["erm"]),
                "backbone": (None, 3, "gone", {}),
                "class_weight": ([1], [[[], 1.0]]),
                "nonsense": (1,),
            }.items()
            for value in values
        },
        "findings: a column that is not there": moved(5),
        "findings: a column before the first": moved(-1),
        "findings: a column twice": moved(1, 1),
        "findings: a column's name": moved("x"),
        "findings: no share of a column": moved(1, share=[]),
        "findings: no number for a share": moved(1, share=["x"]),
        "findings: more than all": moved(1, share=[7.0]),
        "findings: shares by name": moved(1, share={"1": 0.5}),
        "findings: of other features": moved() | {"findings": {"num_columns": 6}},
    }


def hostile_references(known: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """Changes to the tensors that a fitted model keeps of training that make them no model's."""

    def like(name: str, value: float, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.full_like(known[name], value, dtype=dtype)

    changes = {
        f"{name}: {tensor.dtype} of shape {tuple(tensor.shape)}": {name: tensor}
        for name, found in known.items()
        for tensor in (
            found[None],
            found[..., None],
            found.bfloat16(),
            found.to(torch.complex64),
            *((found[:-1], torch.cat([found, found])) if found.dim() else ()),
            *((found[:0],) if found.dim() and name != "environment" else ()),  # there may be none
            *((found[:, :-1], found[:, :0], found[:, 0]) if found.dim() == 2 else ()),
            *(() if found.is_floating_point() else (found.double(), found.int())),
            *((found.long(),) if found.is_floating_point() else ()),
        )
    }
    for name, found in known.items():
        if found.is_floating_point() and name not in ("homophily", "screen.chance"):
            changes[f"{name}: NaN"] = {name: like(name, torch.nan)}
            changes[f"{name}: infinite"] = {name: like(name, torch.inf)}
    return changes | {
        "valid_y: no class": {"valid_y": like("valid_y", 99)},
        "valid_y: unknown": {"valid_y": like("valid_y", -1)},
        "degree: negative": {"degree": like("degree", -1)},
        "train_label_counts: negative": {"train_label_counts": like("train_label_counts", -5)},
        "homophily: more than all": {"homophily": like("homophily", 55)},
        "environment: less than none": {"environment": like("environment", -2)},
        "screen.share: more than all": {"screen.share": like("screen.share", 2)},
        "screen.num_groups: none": {"screen.num_groups": like("screen.num_groups", 0)},
        "one too many": {"extra": torch.ones(3)},
        "one too many of the screen": {"screen.extra": torch.ones(3)},
    }

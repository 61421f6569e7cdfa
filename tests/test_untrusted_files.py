"""The promises of SECURITY.md about files of strangers.

Those about changed files and archives are in test_faults.py, data/test_graph_store.py and
store/test_archive.py.
"""

import io
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch_geometric.data import Data

import canet
from canet.data.graph_store import index as stored
from canet.data.graph_store.index import HEADER_BYTES, INDEX
from canet.defaults import read_settings
from canet.errors import CanetError, InputError
from canet.store import RunFolder, unpack_archive
from canet.store.checksums import CONTENT, FILES, pack_record
from canet.store.model_folder import MODEL
from canet.store.run_folder import read_checkpoint
from canet.store.summary import read_run
from canet.store.tensors import pack
from canet.util import files
from canet.util.files import sha256
from canet.util.schema import CHECKSUM, pack_json
from tests.support.commands import call
from tests.support.finished import make_config, write_run
from tests.support.frames import frames
from tests.support.stores import NUM_NODES, write_store
from tests.support.user_tables import write_folder

HUGE = 2**60
CHECKPOINT = "checkpoint-3-0123456789abcdef.safetensors"


class Trap:
    """An object that creates a file when it is unpickled, which proves that code was run."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


def npz(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return packed.getvalue()


def npy(array: np.ndarray) -> bytes:
    packed = io.BytesIO()
    np.save(packed, array, allow_pickle=True)
    return packed.getvalue()


def pt(graph: Data, **options: bool) -> bytes:
    packed = io.BytesIO()
    torch.save(graph, packed, **options)
    return packed.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model, a finished run, a folder of tables, and graph stores of both kinds."""
    place = tmp_path_factory.mktemp("files")
    for kind in ("dense", "sparse"):
        names = np.array(["a", "b"])[np.arange(NUM_NODES) % 2]
        write_store(place / kind, kind=kind, weighted=True, environment=names)
    model = canet.NodeClassifier("erm", epochs=2, hidden=4, device="cpu", verbose=0)
    model.fit(place / "dense").save(place / "model")
    write_run(place, make_config(), {"test_id": 0.8, "ood/near": 0.5}).path.rename(place / "run")
    write_folder(place / "tables")
    return place


READERS: dict[str, Callable[[Path], object]] = {
    "graph.npz": canet.read_graph,
    "graph.pt": canet.read_graph,
    "tables/nodes.csv": lambda path: canet.read_graph(path.parent),
    "dense/index.json": lambda path: canet.GraphStore(path.parent).load(),
    "dense/features.npy": lambda path: canet.GraphStore(path.parent).load(),
    "model/model.json": lambda path: canet.load(path.parent, "cpu"),
    "run/config.json": lambda path: read_run(RunFolder(path.parent)),
    "run/weights.safetensors": lambda path: RunFolder(path.parent).read_weights(),
    CHECKPOINT: read_checkpoint,
    "runs.tar.xz": lambda path: unpack_archive(path, path.parent / "unpacked"),
    "best.json": read_settings,
}
"""File in `folder` → a function that reads it."""


@pytest.mark.parametrize("name", READERS)
def test_no_code_in_a_file_is_run(name: str, folder: Path, tmp_path: Path) -> None:
    canary, path = tmp_path / "was-run", tmp_path / "files" / name
    shutil.copytree(folder, tmp_path / "files")
    trap, edges = Trap(canary), torch.tensor([[0, 1], [1, 2]])
    graph = Data(x=torch.ones(3, 2), edge_index=edges, y=trap)
    objects = npy(np.array([trap], dtype=object))
    for content in (
        pickle.dumps(trap),
        pt(graph),
        pt(graph, _use_new_zipfile_serialization=False),
        npz(x=npy(np.ones((3, 2))), edge_index=npy(edges.numpy()), y=objects),
        objects,
        b'{"a":' * 100_000,
    ):
        path.write_bytes(content)
        with pytest.raises(CanetError) as caught:
            READERS[name](path)
        assert "\n" not in str(caught.value)
        assert not canary.exists()
    pickle.loads(pickle.dumps(trap))
    assert canary.exists()


def test_sizes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that claims to be huge, one that is too large, and one without end."""
    claim = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({HUGE}, 8)}}\n".encode()
    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(claim)) + claim
    (tmp_path / "graph.npz").write_bytes(npz(x=header, edge_index=header))
    tensors = json.dumps({"w": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 16]}})
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    (run.path / "weights.safetensors").write_bytes(
        struct.pack("<Q", len(tensors)) + tensors.encode() + bytes(16)
    )
    (tmp_path / "large.json").write_bytes(bytes(2**20))
    os.mkfifo(tmp_path / "pipe.json")
    monkeypatch.setattr(files, "MAX_JSON_BYTES", 2**19)
    for read in (
        lambda: canet.read_graph(tmp_path / "graph.npz"),
        run.read_weights,
        lambda: files.read_json(tmp_path / "large.json"),
        lambda: files.read_json(tmp_path / "pipe.json"),
    ):
        with pytest.raises(CanetError):
            read()


def change_index(store: Path, change: Callable[[Any], object]) -> None:
    """Change the content of an index, and its checksum too."""
    index = json.loads((store / INDEX).read_bytes())
    del index[CHECKSUM]
    change(index)
    (store / INDEX).write_bytes(pack_json(index))


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.pop("arrays"),
        lambda index: index.update(num_nodes=2**70),
        lambda index: index.update(classes=[None]),
        lambda index: index["arrays"]["features"].update(dtype="|O"),
        lambda index: index["arrays"]["labels"].update(shape=[2**62]),
        lambda index: index["arrays"]["rowptr"].update(offset=2**70),
        lambda index: index["arrays"].update({"../features": index["arrays"].pop("features")}),
    ],
)
def test_a_forged_index_is_one_line(
    folder: Path, tmp_path: Path, change: Callable[[Any], object]
) -> None:
    shutil.copytree(folder / "dense", tmp_path / "store")
    change_index(tmp_path / "store", change)
    found = call(tmp_path, "convert", "store", "--out", "copy")
    assert (found.code, found.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("at_once", [7, stored.NUMBERS_AT_ONCE])
@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("rowptr", 7, 2**62),
        ("rowptr", -1, 1),
        ("neighbours", 5, NUM_NODES),
        ("labels", 3, -2),
        ("split", 3, 4),
        ("environment", 3, 2),
        ("loops", 1, 1),
        ("feature_rowptr", 4, 2**40),
        ("feature_columns", -1, -1),
    ],
)
def test_a_forged_number_that_points_outside_is_an_error(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    name: str,
    place: int,
    value: int,
) -> None:
    monkeypatch.setattr(stored, "NUMBERS_AT_ONCE", at_once)
    store = shutil.copytree(folder / "sparse", tmp_path / "store")
    path = store / f"{name}.npy"
    array = np.load(path)
    array[place] = value
    path.write_bytes(path.read_bytes()[:HEADER_BYTES] + array.tobytes())
    change_index(store, lambda index: index["arrays"][name].update(sha256=sha256(path)))
    for read in (canet.GraphStore(store).open, canet.GraphStore(store).load):
        with pytest.raises(InputError, match=name):
            read()
    (problem,) = canet.GraphStore(store).problems()
    assert name in problem


def rewrite_model(
    source: Path, target: Path, change: Callable[[Any, dict[str, Any]], None]
) -> Path:
    """Copy a model with a change of its record and its tensors; the checksums are right."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    record = json.loads((target / MODEL).read_text())
    tensors = {name: load((target / name).read_bytes()) for name in record[FILES]}
    change(record[CONTENT], {name.partition("-")[0]: part for name, part in tensors.items()})
    for name, part in tensors.items():
        (target / name).write_bytes(pack(part))
        record[FILES][name] = sha256(target / name)
    (target / MODEL).write_bytes(pack_record(record[FILES], record[CONTENT]))
    return target


def numbers_in(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all numbers in JSON content."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in pairs:
        if isinstance(value, dict | list):
            yield from numbers_in(value, (*path, name))
        elif type(value) in (int, float):
            yield (*path, name)


@pytest.fixture(scope="module")
def table_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of tables with empty cells, words and dates."""
    folder = tmp_path_factory.mktemp("table-model") / "model"
    nodes, edges = frames()
    nodes["day"] = np.datetime64("2024-01-01") + np.arange(len(nodes)).astype("timedelta64[D]")
    canet.NodeClassifier("linear", undirected=True).fit(nodes, edges, label="label").save(folder)
    return folder


def use(model: canet.NodeClassifier) -> None:
    """Predict and diagnose; the results are finite."""
    graph = frames(1)
    days = np.arange(len(graph[0])).astype("timedelta64[D]")
    graph[0]["day"] = np.datetime64("2024-02-01") + days
    assert np.isfinite(model.predict_proba(graph, calibrated=True)).all()
    assert np.isfinite(model.novelty_score(graph)).all()
    model.predict(graph, threshold="best")
    assert str(canet.diagnose(model, None, graph, repeats=1))


@pytest.mark.parametrize("kind", ["weights", "reference"])
def test_an_absurd_number_in_a_tensor_of_a_model_is_an_error_that_names_the_folder(
    kind: str, table_model: Path, tmp_path: Path
) -> None:
    names: list[str] = []
    rewrite_model(table_model, tmp_path / "model", lambda _, parts: names.extend(parts[kind]))
    for name in names:
        for absurd in (float("nan"), float("inf"), -2, 2**62):

            def change(_: Any, parts: Any, name: str = name, absurd: float = absurd) -> None:
                tensor = parts[kind][name]
                if isinstance(absurd, int) != tensor.is_floating_point() and tensor.numel():
                    tensor.view(-1)[tensor.numel() // 2] = absurd
                else:  # another size
                    parts[kind][name] = torch.cat([tensor.reshape(-1), tensor.new_ones(1)])

            path = rewrite_model(table_model, tmp_path / "model", change)
            if (name, str(absurd)) == ("homophily", "nan"):
                use(canet.load(path, "cpu"))  # a graph without edges
                continue
            with pytest.raises(CanetError, match="model"):
                canet.load(path, "cpu")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::canet.errors.InputWarning", "ignore::RuntimeWarning")
def test_an_absurd_number_in_the_record_of_a_model_is_an_error_or_does_not_matter(
    table_model: Path, tmp_path: Path
) -> None:
    content = json.loads((table_model / MODEL).read_text())[CONTENT]
    for place in numbers_in(content):
        for absurd in (-1, 0, 10**30, float("nan"), 1e308):

            def change(record: Any, _: Any, place: Any = place, absurd: float = absurd) -> None:
                for name in place[:-1]:
                    record = record[name]
                record[place[-1]] = absurd

            path = rewrite_model(table_model, tmp_path / "model", change)
            with suppress(CanetError):
                use(canet.load(path, "cpu"))

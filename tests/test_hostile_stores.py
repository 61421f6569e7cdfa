"""Graph stores with flipped bits, wrong indexes and numbers out of range are rejected."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import canet
from canet.data.graph_store import contents
from canet.data.graph_store.contents import check_array
from canet.data.graph_store.index import INDEX
from canet.errors import CanetError, InputError
from tests.support.commands import QUICK, call
from tests.support.forged import lying_indexes, rewrite_array, rewrite_index
from tests.support.stores import NUM_NODES, write_store

COMMANDS = {
    "predict": ("predict", "model", "store", "--out", "found.csv"),
    "fit": ("fit", "store", "--method", "erm", *QUICK, "--out", "new"),
    "train": ("train", "./store", "--method", "erm", *QUICK, "--out", "runs"),
    "convert": ("convert", "store", "--out", "copy"),
    "verify": ("verify", "store"),
}
KINDS = ("dense", "sparse")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of each kind, with all arrays, and a model for each."""
    folder = tmp_path_factory.mktemp("stores")
    for kind in KINDS:
        store = write_store(
            folder / kind,
            kind=kind,
            weighted=True,
            node_id=True,
            time=np.arange(NUM_NODES),
            environment=np.array(["a", "b"])[np.arange(NUM_NODES) % 2],
            sample_weight=np.ones(NUM_NODES),
        )
        model = canet.NodeClassifier("erm", epochs=3, hidden=4, device="cpu", verbose=0)
        model.fit(store).save(folder / f"model of {kind}")
    return folder


@pytest.fixture
def place(work: Path, tmp_path: Path) -> Path:
    """A folder with a store and a model, which a test may change."""
    shutil.copytree(work / "dense", tmp_path / "store")
    shutil.copytree(work / "model of dense", tmp_path / "model")
    return tmp_path


def flips(store: Path, count: int) -> Iterator[str]:
    """Flip one random bit of all files after the other, each time in the unchanged store."""
    files = {path: path.read_bytes() for path in sorted(store.iterdir())}
    chance = random.Random(store.name)
    for _ in range(count):
        (path,) = chance.choices(list(files), [len(raw) for raw in files.values()])
        raw, bit = bytearray(files[path]), chance.randrange(8 * len(files[path]))
        raw[bit // 8] ^= 1 << bit % 8
        path.write_bytes(raw)
        yield f"bit {bit} of {path.name}"
        path.write_bytes(files[path])


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_flipped_bit_of_a_store_is_predicted(
    work: Path, tmp_path: Path, kind: str, count: int
) -> None:
    store = shutil.copytree(work / kind, tmp_path / kind)
    model = canet.load(work / f"model of {kind}", "cpu")
    model.predict_proba(store)
    undetected = []
    for flip in flips(store, count):
        try:
            model.predict_proba(store)
        except CanetError:
            continue
        except Exception as error:
            flip = f"{flip}: {error!r}"
        undetected.append(flip)
    assert undetected == []
    model.predict_proba(store)


@pytest.mark.parametrize(
    "command",
    [
        name if name == "predict" else pytest.param(name, marks=pytest.mark.slow)
        for name in COMMANDS
    ],
)
def test_a_wrong_index_is_one_line(place: Path, command: str) -> None:
    index, outcomes = (place / "store" / INDEX).read_bytes(), {}
    for lie, change in lying_indexes().items():
        rewrite_index(place / "store", change)
        try:
            found = call(place, *COMMANDS[command])
            outcomes[lie] = (found.code, (found.out + found.err).count("\n"))
        except Exception as error:
            outcomes[lie] = (1, repr(error))
        (place / "store" / INDEX).write_bytes(index)
    assert len(outcomes) >= 74
    lines = 2 if command == "verify" else 1
    assert {lie: found for lie, found in outcomes.items() if found != (2, lines)} == {}
    assert call(place, *COMMANDS[command]).code == 0


@pytest.mark.parametrize("at_once", [7, contents.NUMBERS_AT_ONCE])
@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("rowptr", 0, 1),
        ("rowptr", 0, -1),
        ("rowptr", 7, 2**62),
        ("rowptr", 8, -(2**62)),
        ("rowptr", -1, 1),
        ("neighbours", 5, NUM_NODES),
        ("neighbours", -1, -1),
        ("labels", 3, 3),
        ("labels", 3, -2),
        ("split", 3, 4),
        ("environment", 3, 2),
        ("loops", 1, 1),
        ("feature_rowptr", 4, 2**40),
        ("feature_columns", 9, 6),
        ("feature_columns", -1, -1),
    ],
)
def test_a_number_that_points_outside_is_an_error(
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    name: str,
    place: int,
    value: int,
) -> None:
    monkeypatch.setattr(contents, "NUMBERS_AT_ONCE", at_once)
    store = shutil.copytree(work / "sparse", tmp_path / "store")
    rewrite_array(store, name, place, value)
    opened = canet.GraphStore(store)
    for read in (opened.open, opened.load):
        with pytest.raises(InputError, match=name):
            read()
    (problem,) = opened.problems()
    assert name in problem


def test_a_store_is_read_once_in_a_process(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        "canet.data.graph_store.store.check_array",
        lambda index, folder, name: read.append(f"{name}.npy") or check_array(index, folder, name),
    )
    canet.GraphStore(place / "store").open()
    assert len(read) == len(set(read)) == len(list((place / "store").glob("*.npy")))
    read.clear()
    canet.GraphStore(place / "store").load()
    canet.load(place / "model", "cpu").predict(place / "store")
    assert read == []
    (place / "store" / "labels.npy").touch()
    canet.GraphStore(place / "store").open()
    assert "labels.npy" in read

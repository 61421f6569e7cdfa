"""A saved model that this version cannot use gives a `CanetError`."""

from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import canet
from canet.errors import CanetError, VersionError
from canet.estimator.reference import Reference
from canet.store.checksums import CONTENT, FILES
from canet.store.model_folder import ModelFolder
from canet.store.tensors import pack
from canet.util.files import digest_of


def tables(seed: int) -> tuple[pa.Table, pa.Table]:
    """60 nodes of three classes with five columns, and their edges."""
    random = np.random.default_rng(seed)
    kind = np.arange(60) % 3
    columns = {name: random.normal(size=60) + kind * (i == 0) for i, name in enumerate("abcde")}
    nodes = pa.table(
        {"id": np.arange(60), **columns, "kind": np.array(["ant", "bee", "cat"])[kind]}
    )
    ends = random.integers(0, 60, (2, 240))
    return nodes, pa.table({"source": ends[0], "target": ends[1]})


class Sealed:
    """The content of a model folder, to be changed and sealed again with valid checksums."""

    def __init__(self, folder: Path) -> None:
        place = ModelFolder(folder)
        record = place.read_record()
        self.json: Any = record[CONTENT]
        self.tensors = {name.split("-")[0]: place.read_tensors(name) for name in record[FILES]}

    def set(self, value: Any, *path: str | int) -> None:
        """Replace an entry of model.json."""
        reduce(getitem, path[:-1], self.json)[path[-1]] = value

    def write(self, folder: Path) -> Path:
        files = {}
        folder.mkdir()
        for name, tensors in self.tensors.items():
            raw = pack(tensors)
            file = f"{name}-{digest_of(raw)[:12]}.safetensors"
            (folder / file).write_bytes(raw)
            files[file] = digest_of(raw)
        ModelFolder(folder).write_record(files, self.json)
        return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed") / "model"
    model = canet.NodeClassifier("erm", epochs=2, hidden=4, undirected=True, device="cpu")
    model.fit(tables(0), label="kind").save(folder)
    return folder


WRONG: dict[str, Callable[[Sealed], object]] = {
    "method is unknown": lambda m: m.set("magic", "params", "method"),
    "weights of another shape": lambda m: m.tensors["weights"].update(
        {name: tensor[:1] for name, tensor in m.tensors["weights"].items()}
    ),
    "sample without x": lambda m: m.tensors["reference"].pop("x"),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_model_with_wrong_content_is_an_error(
    change: Callable[[Sealed], object], saved: Path, tmp_path: Path
) -> None:
    model = Sealed(saved)
    change(model)
    with pytest.raises(CanetError):
        canet.load(model.write(tmp_path / "model"), device="cpu")


def test_a_setting_that_this_version_does_not_know_is_named(saved: Path, tmp_path: Path) -> None:
    for number, path in enumerate([("model", "settings"), ("params",)]):
        model = Sealed(saved)
        model.set(3, *path, "sparkle")
        with pytest.raises(VersionError, match="sparkle"):
            canet.load(model.write(tmp_path / str(number)))


def test_a_bug_is_not_reported_as_a_problem_of_the_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TypeError("our mistake")

    monkeypatch.setattr(Reference, "from_tensors", fail)
    with pytest.raises(TypeError, match="our mistake"):
        canet.load(saved)

"""A saved model with valid checksums and wrong content works or gives a `CanetError`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import canet
from canet.errors import CanetError, VersionError
from canet.estimator.reference import Reference
from tests.support.lies import LIES, Sealed, entry

Tables = tuple[pa.Table, pa.Table]


def tables(seed: int) -> Tables:
    """60 nodes of three classes with five columns, and their edges."""
    random = np.random.default_rng(seed)
    kind = np.arange(60) % 3
    columns = {name: random.normal(size=60) + kind * (i == 0) for i, name in enumerate("abcde")}
    nodes = pa.table(
        {"id": np.arange(60), **columns, "kind": np.array(["ant", "bee", "cat"])[kind]}
    )
    ends = random.integers(0, 60, (2, 240))
    return nodes, pa.table({"source": ends[0], "target": ends[1]})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed") / "model"
    model = canet.NodeClassifier("erm", epochs=2, hidden=4, undirected=True, device="cpu")
    model.fit(tables(0), label="kind").save(folder)
    return folder


def use(folder: Path, again: Path) -> None:
    """Do with a model what users do."""
    model = canet.load(folder, device="cpu")
    new = tables(1)
    model.predict(new)
    model.predict_proba(new, calibrated=True)
    model.novelty_score(new)
    found = canet.diagnose(model, tables(0), new, repeats=1)
    for show in (str(found), found.page(), found.to_json(), repr(model), str(model.encoding_)):
        assert show
    model.leaderboard()
    model.save(again)


def test_the_model_itself_works(saved: Path, tmp_path: Path) -> None:
    Sealed(saved).write(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        use(tmp_path / "model", tmp_path / "again")


def entries(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each entry of model.json. test_settings.py has wrong values of settings."""
    yield path
    keys = value if isinstance(value, dict) else range(1) if isinstance(value, list) else ()
    for key in keys if value and path[-1:] != ("settings",) else ():
        yield from entries(value[key], (*path, key))


def test_an_entry_of_another_type_is_an_error_or_not_used(saved: Path, tmp_path: Path) -> None:
    paths = list(entries(Sealed(saved).json))[1:]
    assert len(paths) > 60
    wrong = cycle([None, [], {}, "x", -1, 2**62, [[]]])
    for number, (path, value) in enumerate(zip(paths, wrong, strict=False)):
        model = Sealed(saved)
        entry(value, *path)(model)
        model.write(tmp_path / str(number))
        with warnings.catch_warnings(), suppress(CanetError):
            warnings.simplefilter("ignore")
            canet.load(tmp_path / str(number), device="cpu").predict(tables(1))


def test_a_setting_that_this_version_does_not_know_is_named(saved: Path, tmp_path: Path) -> None:
    for number, path in enumerate([("model", "settings"), ("params",)]):
        model = Sealed(saved)
        entry(3, *path, "sparkle")(model)
        model.write(tmp_path / str(number))
        with pytest.raises(VersionError, match="sparkle"):
            canet.load(tmp_path / str(number))


def test_a_bug_is_not_reported_as_a_problem_of_the_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TypeError("our mistake")

    monkeypatch.setattr(Reference, "from_tensors", fail)
    with pytest.raises(TypeError, match="our mistake"):
        canet.load(saved)


@pytest.mark.parametrize("name", LIES)
def test_a_model_that_lies_gives_a_canet_error_or_works(
    name: str, saved: Path, tmp_path: Path
) -> None:
    model = Sealed(saved)
    LIES[name](model)
    model.write(tmp_path / "model")
    with warnings.catch_warnings(), suppress(CanetError):
        warnings.simplefilter("ignore")
        use(tmp_path / "model", tmp_path / "again")

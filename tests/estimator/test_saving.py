"""Errors of loading a model: unknown settings, another version, or a bug in our code."""

from pathlib import Path

import pytest

import canet
from canet.errors import VersionError
from canet.estimator.reference import Reference
from canet.store.checksums import CONTENT
from canet.store.model_folder import ModelFolder
from tests.support.user_graphs import small_user_graph


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    classifier = canet.NodeClassifier("erm", epochs=1, hidden=4, device="cpu", verbose=0)
    classifier.fit(small_user_graph()).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("entry", ["settings", "params"])
def test_a_setting_that_this_version_does_not_know_is_named(entry: str, saved: Path) -> None:
    place = ModelFolder(saved)
    content = place.read_record()[CONTENT]
    place_of = content["model"] if entry == "settings" else content
    place_of[entry]["sparkle"] = 3
    place.write_record(place.files, content)
    with pytest.raises(VersionError, match="sparkle"):
        canet.load(saved)


def test_a_bug_is_not_reported_as_a_problem_of_the_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TypeError("our mistake")

    monkeypatch.setattr(Reference, "from_tensors", fail)
    with pytest.raises(TypeError, match="our mistake"):
        canet.load(saved)

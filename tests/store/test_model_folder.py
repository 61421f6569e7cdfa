"""Saved models: incomplete ones are rejected, and an interrupted save loses no model."""

from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from torch import Tensor

from canet.data.graph_files.encoding import Encoding
from canet.errors import CanetError, ChecksumError, MissingFileError, VersionError
from canet.methods.base import Findings
from canet.store.checksums import CONTENT
from canet.store.model_folder import CARD, MODEL, ModelFolder, read_model, write_model
from canet.util.locks import LOCK
from tests.support.model_folders import FILE, saying, tensors, write


def assert_contains(folder: Path, start: int) -> None:
    file, found = read_model(folder)
    assert file == saying(start)
    assert found.keys() == tensors(start).keys()
    for name, named in tensors(start).items():
        assert found[name].keys() == named.keys()
        for key, tensor in named.items():
            assert found[name][key].equal(tensor)
            assert found[name][key].dtype == tensor.dtype


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "mine"
    write(folder, 1)
    return folder


def visible(folder: Path) -> list[str]:
    """Names of the files without the lock."""
    return sorted(path.name for path in folder.iterdir() if path.name != LOCK)


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": [False, True], "findings": Findings(3, [1], [0.5])},
        {"classes": [0, 1, 5], "environments_seen": ["a", "b"], "encoding": Encoding(())},
    ],
)
def test_a_model_is_read_back_without_changes(changes: dict[str, Any], tmp_path: Path) -> None:
    file = replace(FILE, **changes)
    write_model(tmp_path / "model", file, tensors(1), "card")
    found, _ = read_model(tmp_path / "model")
    assert repr(found) == repr(file)  # False and 0 are equal


def test_saving_a_model_replaces_the_old_model(saved: Path) -> None:
    write(saved, 2)
    assert_contains(saved, 2)
    assert [name.split("-")[0] for name in visible(saved)] == [CARD, MODEL, "reference", "weights"]


def test_saving_the_same_model_again_changes_no_file(saved: Path) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    write(saved, 1)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_save_keeps_the_old_model(
    saved: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def stop(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(ModelFolder, "write_record", stop)
        with pytest.raises((CanetError, KeyboardInterrupt)):
            write(saved, 2)
    assert_contains(saved, 1)
    write(saved, 3)
    assert_contains(saved, 3)
    assert len(visible(saved)) == 4


def test_a_save_waits_for_another_one_into_the_same_folder(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record = ModelFolder.write_record
    other, waits = Thread(target=write, args=(saved, 3)), list[bool]()

    def write_during_another_save(self: ModelFolder, files: Any, content: Any) -> None:
        if content["num_features"] == 2:
            other.start()
            other.join(timeout=0.3)  # enough time to save without a lock
            waits.append(other.is_alive())
        write_record(self, files, content)

    monkeypatch.setattr(ModelFolder, "write_record", write_during_another_save)
    write(saved, 2)
    other.join()
    assert waits == [True]
    assert_contains(saved, 3)
    assert len(visible(saved)) == 4


def test_a_model_saved_while_the_old_one_is_read_is_read_instead(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_tensors = ModelFolder.read_tensors
    starts = iter((2, 3))

    def after_another_save(self: ModelFolder, name: str) -> dict[str, Tensor]:
        if start := next(starts, None):
            write(self.path, start)
        return read_tensors(self, name)

    monkeypatch.setattr(ModelFolder, "read_tensors", after_another_save)
    assert_contains(saved, 3)


def test_a_folder_with_other_files_is_rejected_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "model-of-mine.safetensors").write_text("weights")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CanetError, match="other files"):
        write(tmp_path, 1)
    assert sorted(tmp_path.iterdir()) == before


def test_other_files_in_a_model_folder_are_kept(saved: Path) -> None:
    others = [saved / "notes.md", saved / "adapter.safetensors", saved / "other-model.safetensors"]
    for path in others:
        path.write_text("not ours")
    write(saved, 2)
    assert_contains(saved, 2)
    assert all(path.read_text() == "not ours" for path in others)


def test_a_missing_model_is_a_missing_file_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for folder in ("file", "file/below"):
        with pytest.raises(CanetError, match="file"):
            write(tmp_path / folder, 1)
    assert (tmp_path / "file").read_text() == "text"
    for folder in ("", "nowhere", "file", "file/below"):
        with pytest.raises(MissingFileError, match="no model"):
            read_model(tmp_path / folder)


def test_a_missing_file_a_changed_one_and_an_unknown_entry_are_different_errors(
    saved: Path,
) -> None:
    (weights,) = saved.glob("weights-*")
    raw = weights.read_bytes()
    weights.unlink()
    with pytest.raises(MissingFileError, match="weights"):
        read_model(saved)
    weights.write_bytes(raw + b"\0")
    with pytest.raises(ChecksumError, match="weights"):
        read_model(saved)
    weights.write_bytes(raw)
    folder = ModelFolder(saved)
    folder.write_record(folder.files, folder.read_record()[CONTENT] | {"later": 1})
    with pytest.raises(VersionError, match="later"):
        read_model(saved)

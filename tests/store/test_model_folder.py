"""A saved model: complete or refused, and never lost to a save that was stopped."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor

from canet.errors import CanetError
from canet.store import model_folder
from canet.store.model_folder import MODEL, read_model, write_model
from canet.util.files import SEAL, digest_of, pack_sealed, read_json, write_json
from canet.util.locks import LOCK

CONTENT = {"classes": ["α", "b"], "score": 0.1 + 0.2, "nothing": None}


def tensors(start: int) -> dict[str, dict[str, Tensor]]:
    return {
        "weights": {"a": torch.arange(start, start + 6.0).view(2, 3).t(), "b": torch.tensor(True)},
        "reference": {"none": torch.empty(0, 4), "x.shape": torch.tensor([start, 4])},
    }


def assert_holds(folder: Path, start: int) -> None:
    content, found = read_model(folder)
    assert content["start"] == start
    assert found.keys() == tensors(start).keys()
    for name, named in tensors(start).items():
        assert found[name].keys() == named.keys()
        for key, tensor in named.items():
            assert found[name][key].equal(tensor)
            assert found[name][key].dtype == tensor.dtype


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "mine"
    write_model(folder, CONTENT | {"start": 1}, tensors(1))
    return folder


def change(folder: Path, **entries: Any) -> None:
    """Change what model.json says, as somebody does who knows of its checksum."""
    content = read_json(folder / MODEL) | entries
    del content[SEAL]
    (folder / MODEL).write_bytes(pack_sealed(content))


def visible(folder: Path) -> list[str]:
    """Names of the files that a person sees."""
    return sorted(path.name for path in folder.iterdir() if path.name != LOCK)


def refused(folder: Path, cause: str) -> None:
    with pytest.raises(CanetError, match=cause) as caught:
        read_model(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_model_comes_back_as_it_went(saved: Path) -> None:
    assert_holds(saved, 1)
    content, _ = read_model(saved)
    assert {key: content[key] for key in CONTENT} == CONTENT


def test_tensors_that_require_gradients_or_are_views_are_saved(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.arange(12.0).view(3, 4))
    write_model(tmp_path / "m", {}, {"weights": {"all": weight, "column": weight[:, 1]}})
    _, found = read_model(tmp_path / "m")
    assert found["weights"]["all"].equal(weight)
    assert found["weights"]["column"].tolist() == [1, 5, 9]


def test_a_model_saved_over_another_takes_its_place(saved: Path) -> None:
    write_model(saved, CONTENT | {"start": 2}, tensors(2))
    assert_holds(saved, 2)
    assert [name.split("-")[0] for name in visible(saved)] == [MODEL, "reference", "weights"]


def test_a_model_saved_over_itself_stays(saved: Path) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    write_model(saved, CONTENT | {"start": 1}, tensors(1))
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_save_stopped_before_its_end_leaves_the_old_model(
    saved: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def stop(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(model_folder, "pack_sealed", stop)
        with pytest.raises((CanetError, KeyboardInterrupt)):
            write_model(saved, CONTENT | {"start": 2}, tensors(2))
    assert_holds(saved, 1)
    write_model(saved, CONTENT | {"start": 3}, tensors(3))
    assert_holds(saved, 3)
    assert len(visible(saved)) == 3


def test_a_save_stopped_between_two_files_leaves_the_old_model(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []

    def stop_at_the_second(self: Path, raw: bytes) -> int:
        if written:
            raise OSError(5, "Input/output error")
        written.append(raw)
        with self.open("wb") as file:
            return file.write(raw)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", stop_at_the_second)
        with pytest.raises(
            CanetError, match=r"cannot write the model .*Input/output error.*: choose"
        ):
            write_model(saved, CONTENT | {"start": 2}, tensors(2))
    assert written
    assert_holds(saved, 1)


def test_a_first_save_that_was_stopped_leaves_no_model_and_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(model_folder, "pack_sealed", stop)
        with pytest.raises(CanetError, match=r"No space left on device.*: choose another folder"):
            write_model(tmp_path / "m", {}, tensors(1))
    refused(tmp_path / "m", "no model at")
    write_model(tmp_path / "m", {"start": 1}, tensors(1))
    assert_holds(tmp_path / "m", 1)


def test_a_save_waits_for_another_one_into_the_same_folder(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_to_last = model_folder.pack_sealed
    other = Thread(target=write_model, args=(saved, CONTENT | {"start": 3}, tensors(3)))

    def meanwhile_another_saves(content: Any) -> bytes:
        if content["start"] == 2:
            other.start()
            other.join(timeout=0.3)  # enough to save, were there nothing to wait for
        return first_to_last(content)

    monkeypatch.setattr(model_folder, "pack_sealed", meanwhile_another_saves)
    write_model(saved, CONTENT | {"start": 2}, tensors(2))
    assert_holds(saved, 2)
    other.join()
    assert_holds(saved, 3)
    assert len(visible(saved)) == 3


def test_a_model_saved_while_the_old_one_is_read_is_read_in_its_place(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_tensors = model_folder._tensors
    starts = iter((2, 3))

    def after_another_save(folder: Path, file: Any) -> dict[str, Tensor]:
        if start := next(starts, None):
            write_model(folder, CONTENT | {"start": start}, tensors(start))
        return read_tensors(folder, file)

    monkeypatch.setattr(model_folder, "_tensors", after_another_save)
    assert_holds(saved, 3)


SAVE = """
import sys
from pathlib import Path
from canet.store.model_folder import write_model
from tests.store.test_model_folder import tensors
print("ready", flush=True)
sys.stdin.readline()
for _ in range(60):
    write_model(Path(sys.argv[1]), {"start": int(sys.argv[2])}, tensors(int(sys.argv[2])))
"""


@pytest.mark.slow
def test_two_processes_that_save_into_one_folder_leave_one_whole_model_at_any_moment(
    saved: Path, record_property: Any
) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": env}
    with ExitStack() as stack:
        savers = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", SAVE, str(saved), start], **pipes)
            )
            for start in ("2", "3")
        ]
        for saver in savers:
            assert saver.stdout.readline() == "ready\n"
        for saver in savers:
            print("go", file=saver.stdin, flush=True)
        reads = 0
        while any(saver.poll() is None for saver in savers):
            read_model(saved)
            reads += 1
    record_property("reads", reads)
    assert [saver.returncode for saver in savers] == [0, 0]
    assert_holds(saved, read_model(saved)[0]["start"])
    assert len(visible(saved)) == 3


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "model-of-mine.safetensors").write_text("weights")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CanetError, match="holds other files: choose another folder"):
        write_model(tmp_path, {}, tensors(1))
    assert sorted(tmp_path.iterdir()) == before


def test_an_empty_folder_or_one_with_hidden_files_only_takes_a_model(tmp_path: Path) -> None:
    (tmp_path / ".gitkeep").touch()
    write_model(tmp_path, {"start": 1}, tensors(1))
    assert_holds(tmp_path, 1)


def test_files_of_others_beside_a_model_stay(saved: Path) -> None:
    others = [saved / "notes.md", saved / "adapter.safetensors", saved / "other-model.safetensors"]
    for path in others:
        path.write_text("not ours")
    write_model(saved, CONTENT | {"start": 2}, tensors(2))
    assert_holds(saved, 2)
    assert all(path.read_text() == "not ours" for path in others)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for place, cause in (
        ("file", "is a file: choose a folder"),
        ("file/below", "cannot write the"),
    ):
        with pytest.raises(CanetError, match=cause):
            write_model(tmp_path / place, {}, tensors(1))
        refused(tmp_path / place, "no model at")
    assert (tmp_path / "file").read_text() == "text"


def test_a_missing_or_empty_folder_has_no_model(tmp_path: Path) -> None:
    refused(tmp_path, "no model at .*: give the folder")
    refused(tmp_path / "nowhere", "no model at .*: give the folder")


def test_a_folder_in_place_of_model_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / MODEL).mkdir()
    refused(tmp_path, "cannot read")


@pytest.mark.parametrize("name", ["weights", "reference"])
def test_every_changed_byte_of_a_tensor_file_is_found(saved: Path, name: str) -> None:
    (path,) = saved.glob(f"{name}-*")
    raw = path.read_bytes()
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        refused(saved, "is damaged: save or fit it again")
    path.write_bytes(raw)
    assert_holds(saved, 1)


def test_a_cut_or_missing_tensor_file_is_found(saved: Path) -> None:
    (path,) = saved.glob("weights-*")
    raw = path.read_bytes()
    for length in (0, 7, 8, len(raw) - 1):
        path.write_bytes(raw[:length])
        refused(saved, "is damaged")
    path.write_bytes(raw + b"\0")
    refused(saved, "is damaged")
    path.unlink()
    refused(saved, "is damaged")


def test_every_changed_bit_of_model_json_is_refused(saved: Path) -> None:
    raw = (saved / MODEL).read_bytes()
    for place in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[place // 8] ^= 1 << place % 8
        (saved / MODEL).write_bytes(changed)
        with pytest.raises(CanetError):
            read_model(saved)


def test_a_model_older_than_the_checksum_of_model_json_is_read(saved: Path) -> None:
    content = read_json(saved / MODEL)
    del content[SEAL]
    write_json(saved / MODEL, content | {"format": 1})
    assert_holds(saved, 1)
    write_json(saved / MODEL, content)
    refused(saved, "is damaged")


def test_a_cut_model_json_is_refused(saved: Path) -> None:
    raw = (saved / MODEL).read_bytes()
    for length in range(0, len(raw) - 2, 5):
        (saved / MODEL).write_bytes(raw[:length])
        refused(saved, "is damaged")


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "null", "{}", '{"format": 1, "files": []}', "\xff\xfe", "[" * 100_000]
)
def test_what_is_no_model_json_is_refused(saved: Path, text: str) -> None:
    (saved / MODEL).write_bytes(text.encode("latin-1"))
    refused(saved, "is damaged")


def test_a_model_of_another_format_is_refused_by_its_number(saved: Path) -> None:
    change(saved, format=3)
    refused(saved, "holds a model of format 3, this version reads 2: update canet")
    change(saved, format=None)
    refused(saved, "format None")


@pytest.mark.parametrize("outside", ["../secret", "/etc/hostname", "deeper/secret", "..", ".", ""])
def test_no_file_outside_the_folder_is_read(saved: Path, outside: str) -> None:
    (weights,) = saved.glob("weights-*")
    (saved / "deeper").mkdir()
    for place in (saved.parent, saved / "deeper"):
        (place / "secret").write_bytes(weights.read_bytes())
    files = read_json(saved / MODEL)["files"]
    files["weights"]["file"] = outside
    change(saved, files=files)
    refused(saved, "is damaged")


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "weights",
        [],
        {},
        {"file": "a"},
        {"file": 3, "sha256": ""},
        {"file": None, "sha256": None},
        {"file": "a\0b", "sha256": ""},
        {"file": MODEL, "sha256": ""},
    ],
)
def test_files_that_are_named_wrongly_are_refused(saved: Path, entry: Any) -> None:
    change(saved, files={"weights": entry})
    refused(saved, "is damaged")


def test_a_file_with_the_right_digest_that_holds_no_tensors_is_refused(saved: Path) -> None:
    for raw in (b"", b"text", b"\xff" * 64, (2).to_bytes(8, "little") + b"[]"):
        (saved / "a").write_bytes(raw)
        change(saved, files={"weights": {"file": "a", "sha256": digest_of(raw)}})
        refused(saved, "is damaged")

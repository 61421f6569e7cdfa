"""`canet verify`: what is whole, what is not, and what it says of both."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from canet.store.record import MARKER, read_record, write_record

from canet.cli.verification import verify
from canet.errors import CanetError
from canet.methods import METHODS
from canet.store import RunFolder, find_runs, write_archive
from canet.store.model_folder import write_model
from canet.store.run_folder import CONFIG, METRICS, RESULT, WEIGHTS
from canet.store.tensors import pack
from canet.training import Trainer
from canet.util.files import read_json, write_bytes, write_json
from tests.cli.test_cli import call
from tests.finished import make_config, write_run
from tests.training.tiny import tiny_task

ARCHIVE = Path(__file__).parents[1] / "docs" / "results" / "backbones" / "runs.tar.xz"


def train(folder: Path, method: str = "erm", backbone: str = "gcn") -> RunFolder:
    settings = METHODS[method].settings_type(hidden=4, epochs=2)
    Trainer(tiny_task(), method, backbone, settings, "cpu").run(folder=folder)
    return RunFolder(folder)


def resealed(place: RunFolder, name: str, content: object) -> None:
    """Change a file as somebody does who changes its checksum, too."""
    sealed(place, name, write_json(place.path / name, content))


def sealed(place: RunFolder, name: str, digest: str) -> None:
    record = read_record(place.path)
    assert record is not None
    write_record(place.path, record | {name: digest})


@pytest.mark.parametrize("method", METHODS)
def test_whole_runs_of_every_method_have_nothing_wrong(method: str, tmp_path: Path) -> None:
    train(tmp_path, method)
    found = verify(tmp_path)
    assert found.problems == []
    assert found.count == "1 finished run(s): nothing wrong"


def test_each_damaged_file_is_a_line_and_the_other_runs_are_counted(tmp_path: Path) -> None:
    for number in range(5):
        train(tmp_path / "runs" / str(number), backbone="gat")
    for number, name in enumerate((CONFIG, METRICS, RESULT, WEIGHTS)):
        path = tmp_path / "runs" / str(number) / name
        path.write_bytes(path.read_bytes()[:-9] + b"x" + path.read_bytes()[-8:])
    (tmp_path / "runs/0" / WEIGHTS).unlink()
    answer = call(tmp_path, "verify", "runs")
    assert (answer.code, answer.err) == (2, "")
    *lines, count = answer.out.splitlines()
    damage = "is damaged or was changed after the run"
    assert lines == [
        f"'runs/0/{WEIGHTS}' is missing",
        f"'runs/0/{CONFIG}' {damage}",
        f"'runs/1/{METRICS}' {damage}",
        f"'runs/2/{RESULT}' {damage}",
        f"'runs/3/{WEIGHTS}' {damage}",
    ]
    assert count == "5 finished run(s): 5 problem(s)"


def test_a_damaged_marker_is_a_line(tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"{}", b"torn")):
        place = train(tmp_path / str(number))
        (place.path / MARKER).write_bytes(content)
    found = verify(tmp_path)
    assert len(found.problems) == found.finished == 3
    assert all("done' is damaged" in line for line in found.problems)


def test_what_is_whole_but_cannot_be_used_is_a_line(tmp_path: Path) -> None:
    first = train(tmp_path / "a")
    resealed(first, RESULT, first.read_result() | {"scores": {}})
    second = train(tmp_path / "b")
    content = read_json(second.path / CONFIG)
    resealed(second, CONFIG, content | {"settings": content["settings"] | {"hidden": 5}})
    third = train(tmp_path / "c")
    resealed(third, CONFIG, read_json(third.path / CONFIG) | {"method": "magic"})
    tables, fit, name = verify(tmp_path).problems
    assert "'" + str(first.path) in tables
    assert "does not fit the model" in fit
    assert "unknown method 'magic'" in name


def empty_tensors(shape: list[int]) -> bytes:
    """Weights of a shape that has no entry, in a file of a few bytes."""
    tensor = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    head = {f"model.{name}.weight": tensor for name in ("phi_in", "phi_out")}
    content = json.dumps(head).encode()
    return struct.pack("<Q", len(content)) + content


@pytest.mark.parametrize("old", [False, True], ids=["sealed", "old"])
@pytest.mark.parametrize(
    "weights",
    [
        *({f"model.{name}.weight": torch.zeros(())} for name in ("phi_in", "phi_out")),
        *({f"model.{name}.weight": torch.zeros(4)} for name in ("phi_in", "phi_out")),
        {"model.phi_in.weight": torch.zeros(4, 9, dtype=torch.complex64)},
        *([0, 2**40], [2**40, 0]),
    ],
    ids=["in 0", "out 0", "in 1", "out 1", "complex", "huge", "tall"],
)
def test_hostile_weights_are_a_line_and_the_other_runs_are_looked_at(
    weights: dict[str, torch.Tensor] | list[int], old: bool, tmp_path: Path
) -> None:
    place = train(tmp_path / "a")
    later = train(tmp_path / "b")
    (later.path / METRICS).write_text("{}")
    if isinstance(weights, list):
        content = empty_tensors(weights)
    else:
        content = pack(place.read_tensors(WEIGHTS) | weights)
    sealed(place, WEIGHTS, write_bytes(place.path / WEIGHTS, content))
    if old:
        config = read_json(place.path / CONFIG)
        write_json(place.path / CONFIG, {k: v for k, v in config.items() if k != "data"})
        (place.path / MARKER).write_bytes(b"")
    found = verify(tmp_path)
    assert found.finished == 2
    fit, damage = found.problems
    assert fit.startswith(f"'{place.path / WEIGHTS}' does not fit the model")
    assert damage.startswith(f"'{later.path / METRICS}' is damaged")


def test_whatever_is_wrong_with_a_run_the_others_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        train(tmp_path / name)

    def fail(place: RunFolder) -> None:
        raise IndexError("a\nb")

    monkeypatch.setattr("canet.cli.verification.read_run", fail)
    assert verify(tmp_path).problems == [
        f"'{tmp_path / name}' cannot be used (IndexError: a b)" for name in ("a", "b")
    ]


def test_runs_behind_a_link_are_looked_at_once(tmp_path: Path) -> None:
    place = train(tmp_path / "elsewhere" / "run")
    (place.path / METRICS).write_text("{}")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "b").symlink_to(place.path)
    found = verify(tmp_path / "runs")
    assert found.finished == 1
    (line,) = found.problems
    assert line.startswith(f"'{tmp_path / 'runs/a/run' / METRICS}' is damaged")


def test_what_cannot_be_looked_at_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "run")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert verify(tmp_path).problems == [
        f"'{tmp_path / 'link'}' is a link to what is not there",
        f"'{tmp_path / 'closed'}' cannot be read (Permission denied)",
    ]


def test_runs_without_checksums_are_counted_as_such(tmp_path: Path) -> None:
    write_run(tmp_path, make_config(), {"test_id": 50.0, "ood/a": 40.0})
    train(tmp_path / "new")
    assert verify(tmp_path).count == (
        "2 finished run(s), 1 of them without checksums: nothing wrong"
    )


def test_an_unfinished_run_is_counted_and_its_damaged_checkpoint_is_a_line(tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run")
    place.begin(make_config())
    for epoch in (3, 4):
        place.save_checkpoint({"epoch": torch.tensor(epoch)})
    assert verify(tmp_path).count == "0 finished run(s), 1 unfinished run(s): nothing wrong"
    place.checkpoints[0].write_bytes(b"torn")
    (line,) = verify(tmp_path).problems
    assert line.startswith(f"'{place.checkpoints[0]}' is damaged: the run goes on from")


def test_a_problem_is_one_line_whatever_a_folder_is_called(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\nb\xff")
    train(tmp_path / "runs" / name)
    (tmp_path / "runs" / name / METRICS).write_text("{}")
    answer = call(tmp_path, "verify", "runs")
    assert answer.code == 2
    assert len(answer.out.splitlines()) == 2


def test_saved_models_are_looked_at(tmp_path: Path) -> None:
    write_model(tmp_path / "model", {"params": {}}, {"weights": {"a": torch.ones(3)}})
    answer = call(tmp_path, "verify", "model")
    assert answer.code == 2
    assert answer.out.splitlines() == [
        "the model at 'model' is damaged: save or fit it again",
        "0 finished run(s), 1 model(s): 1 problem(s)",
    ]


def test_an_archive_is_looked_through(tmp_path: Path) -> None:
    train(tmp_path / "runs" / "a")
    write_archive(find_runs(tmp_path), tmp_path / "runs.tar.xz")
    shutil.rmtree(tmp_path / "runs")
    answer = call(tmp_path, "verify", "runs.tar.xz")
    assert (answer.code, answer.out) == (0, "1 finished run(s): nothing wrong\n")


def test_runs_of_a_committed_archive_are_whole() -> None:
    found = verify(ARCHIVE)
    assert found.problems == []
    assert found.without_checksums == found.finished > 100


@pytest.mark.parametrize("where", ["nowhere", "empty"])
def test_where_there_is_nothing_to_look_at_is_told(where: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CanetError, match="no run and no model at"):
        verify(tmp_path / where)

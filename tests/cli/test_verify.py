"""`canet verify`: everything is read, and each error is a line."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from canet.errors import CanetError
from canet.methods import METHODS
from canet.models import Trainer
from canet.paper.reproduce import available_features
from canet.report.comparison import find_results
from canet.store import RunFolder
from canet.store.model_folder import write_model
from canet.store.run_folder import CONFIG, MARKER, METRICS, RESULT, WEIGHTS
from tests.support.commands import call
from tests.support.finished import change_result, make_config, write_run
from tests.support.model_folders import FILE, tensors
from tests.support.tiny import tiny_task

ARCHIVE = Path(__file__).parents[2] / "results" / "backbones" / "runs.tar.xz"


def verify(path: Path) -> list[str]:
    """The lines that the command prints: problems, then the counts."""
    answer = call(path.parent, "verify", path)
    lines = answer.out.splitlines()
    assert (answer.code, answer.err) == (2 if len(lines) > 1 else 0, "")
    return lines


def write(root: Path, seed: int = 0) -> RunFolder:
    return write_run(root, make_config(seed=seed), {"test_id": 50.0, "ood/a": 40.0})


def test_a_trained_run_has_nothing_wrong(tmp_path: Path) -> None:
    settings = METHODS["canet"].settings_type(hidden=4, epochs=2)
    Trainer(tiny_task(), "canet", "gcn", settings, "cpu").run(folder=tmp_path)
    assert verify(tmp_path) == ["1 finished run(s): no problems"]


def test_each_changed_or_missing_file_is_a_line_and_the_other_runs_are_counted(
    tmp_path: Path,
) -> None:
    places = [write(tmp_path / "runs", seed) for seed in range(6)]
    names = (CONFIG, METRICS, RESULT, WEIGHTS, MARKER)
    for place, name in zip(places, names, strict=False):
        path = place.path / name
        path.write_bytes(path.read_bytes()[:-9] + b"x" + path.read_bytes()[-8:])
    (places[0].path / WEIGHTS).unlink()
    *lines, count = verify(tmp_path / "runs")
    assert len(lines) == 6
    for line, name in zip(lines, (CONFIG, WEIGHTS, *names[1:]), strict=True):
        assert f"{name}'" in line
    assert count == "6 finished run(s): 6 problem(s)"


def test_a_result_of_another_version_is_a_line(tmp_path: Path) -> None:
    change_result(write(tmp_path), later=1)
    line, _ = verify(tmp_path)
    assert "later" in line


def test_runs_behind_a_link_are_read_once(tmp_path: Path) -> None:
    place = write(tmp_path / "elsewhere")
    (place.path / METRICS).write_text("{}")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "b").symlink_to(place.path)
    assert verify(tmp_path / "runs")[-1] == "1 finished run(s): 1 problem(s)"


def test_a_link_to_nothing_and_a_folder_that_cannot_be_listed_are_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    link, closed, _ = verify(tmp_path)
    assert "link'" in link
    assert "closed'" in closed


def test_an_unfinished_run_is_counted_and_its_changed_checkpoint_is_a_line(tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run")
    place.begin(make_config())
    for epoch in (3, 4):
        place.save_checkpoint({"epoch": torch.tensor(epoch)})
    assert verify(tmp_path) == ["0 finished run(s), 1 unfinished run(s): no problems"]
    place.checkpoints[0].write_bytes(b"torn")
    line, _ = verify(tmp_path)
    assert str(place.checkpoints[0]) in line


def test_saved_models_are_read(tmp_path: Path) -> None:
    write_model(tmp_path / "model", FILE, tensors(1), "card")
    next((tmp_path / "model").glob("weights-*")).write_bytes(b"torn")
    problem, count = verify(tmp_path)
    assert "weights" in problem
    assert "1 model(s)" in count


def test_runs_of_a_committed_archive_have_nothing_wrong() -> None:
    assert verify(ARCHIVE) == ["350 finished run(s): no problems"]


@pytest.mark.parametrize("where", ["nowhere", "empty"])
def test_where_there_is_nothing_to_read_is_an_error(where: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert where in call(tmp_path, "verify", where).complaint


def test_runs_that_were_swapped_are_problems_of_verify_report_and_reproduce(tmp_path: Path) -> None:
    configs = [make_config(method=method) for method in ("erm", "canet")]
    erm, canet = (write_run(tmp_path, config, {"ood/a": 50.0}) for config in configs)
    erm.path.rename(tmp_path / "aside")
    canet.path.rename(erm.path)
    (tmp_path / "aside").rename(canet.path)
    assert verify(tmp_path)[-1] == "2 finished run(s): 2 problem(s)"
    with pytest.raises(CanetError, match="seed-0"):
        find_results(tmp_path)
    with pytest.raises(CanetError, match="seed-0"):
        available_features(tmp_path)


def test_several_paths_are_read(tmp_path: Path) -> None:
    write(tmp_path / "one")
    (write(tmp_path / "two").path / WEIGHTS).unlink()
    answer = call(tmp_path, "verify", tmp_path / "one", tmp_path / "two")
    assert answer.code == 2
    assert answer.out.splitlines()[-1] == "2 finished run(s): 1 problem(s)"
    (tmp_path / "empty").mkdir()
    assert "empty'" in call(tmp_path, "verify", tmp_path / "one", tmp_path / "empty").complaint

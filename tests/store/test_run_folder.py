import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from canet._version import __version__
from canet.data.digest import DataDigest
from canet.errors import CanetError, ChecksumError, InputWarning, MissingFileError, VersionError
from canet.methods.base import Findings
from canet.store import RunConfig, RunFolder, find_runs, run_folder
from canet.store.config import group_by_configuration
from canet.store.result import InferredEnvironments
from canet.store.run_folder import (
    CONFIG,
    MARKER,
    METRICS,
    RESULT,
    WEIGHTS,
    folders_below,
    read_checkpoint,
)
from canet.util.files import sha256
from canet.util.locks import LOCK
from tests.support.finished import make_result

SETTINGS = {"hidden": 8, "weight_decay": 5e-5, "estimator_learning_rate": None, "deep": True}
CONFIGURATION = RunConfig("tiny", "paper", 0, "original", False, "erm", "gcn", SETTINGS, seed=1)
CURVES = {"loss": [1.5, 0.1 + 0.2], "valid": [50.0, 200 / 3]}
OUTCOME = make_result(
    {"train": 200 / 3},
    environments_seen=["a", "b"],
    inferred_environments=InferredEnvironments({"train": [[0.1, 0.9]]}, [1.4], None),
    findings=Findings(3, [2], [0.5]),
)
DATA = DataDigest("graph", "labels", "splits", "features", (1.0, -2.0, 10.0))
FILES = {CONFIG, METRICS, RESULT, WEIGHTS}


def finished_run(path: Path, config: RunConfig = CONFIGURATION) -> RunFolder:
    folder = RunFolder(path)
    folder.begin(config, DATA)
    folder.finish(nn.Linear(3, 2).state_dict(), CURVES, OUTCOME)
    return folder


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_finished_run_has_every_file_with_its_checksum_and_no_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.begin(CONFIGURATION, DATA)
    folder.save_checkpoint({"epoch": torch.tensor(1)})
    assert not folder.finished
    finished_run(folder.path)
    assert folder.finished
    assert {path.name for path in folder.path.iterdir()} == {*FILES, MARKER, LOCK}
    assert folder.files == {name: sha256(folder.path / name) for name in FILES}


def test_files_have_the_default_permissions(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        folder = finished_run(tmp_path / "run")
        folder.save_checkpoint({"epoch": torch.tensor(1)})
    finally:
        os.umask(umask)
    shown = [path for path in folder.path.iterdir() if path.name != LOCK]
    assert {path.stat().st_mode & 0o777 for path in shown} == {0o644}


def test_written_content_is_read_back_exactly(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    assert repr(folder.read_config()) == repr(CONFIGURATION)  # 8 and 8.0 are equal
    assert folder.read_start().data == DATA
    assert folder.read_metrics() == CURVES
    assert folder.read_result() == OUTCOME
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    folder.load_weights(first)
    folder.load_weights(second)
    assert first.weight.equal(second.weight)


@pytest.mark.parametrize("crashing", [WEIGHTS, METRICS, RESULT, MARKER])
def test_a_crash_between_two_writes_leaves_an_unfinished_run(
    crashing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    folder.begin(CONFIGURATION)
    folder.save_checkpoint({"epoch": torch.tensor(1)})
    replaced = Path.replace

    def crash(self: Path, target: Path) -> Path:
        if target.name == crashing:
            raise KeyboardInterrupt
        return replaced(self, target)

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        folder.finish(nn.Linear(3, 2).state_dict(), CURVES, OUTCOME)
    assert not folder.finished
    assert len(folder.checkpoints) == 1
    with pytest.raises(CanetError, match=str(tmp_path)):
        find_runs(tmp_path)


def test_a_finished_run_is_not_overwritten(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    before = content_of(tmp_path)
    folder.finish(nn.Linear(3, 2).state_dict(), CURVES, replace(OUTCOME, epochs=9))
    assert content_of(tmp_path) == before


def test_files_added_to_a_finished_run_are_in_its_record(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    folder.add_json("extra.json", {"a": 1})
    folder.add_tensors("extra.safetensors", {"a": torch.ones(2)})
    assert folder.read_json("extra.json") == {"a": 1}
    assert folder.read_tensors("extra.safetensors")["a"].tolist() == [1, 1]
    assert folder.files.keys() == FILES | {"extra.json", "extra.safetensors"}
    (tmp_path / "extra.json").write_text('{"a": 2}')
    with pytest.raises(ChecksumError):
        folder.read_json("extra.json")


def test_the_last_two_checkpoints_are_kept_newest_first(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.begin(CONFIGURATION)
    for epoch in (7, 9, 100):
        folder.save_checkpoint({"epoch": torch.tensor(epoch)})
    assert [int(read_checkpoint(path)["epoch"]) for path in folder.checkpoints] == [100, 9]
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2
    with pytest.raises(MissingFileError, match="checkpoint-3"):
        read_checkpoint(tmp_path / "checkpoint-3-0123456789abcdef.safetensors")


def test_a_checkpoint_of_a_run_with_another_seed_is_rejected(tmp_path: Path) -> None:
    ours, other = RunFolder(tmp_path / "ours"), RunFolder(tmp_path / "other")
    ours.begin(CONFIGURATION, DATA)
    other.begin(replace(CONFIGURATION, seed=2), DATA)
    other.save_checkpoint({"epoch": torch.tensor(1)})
    (path,) = other.checkpoints
    assert int(read_checkpoint(path)["epoch"]) == 1
    moved = path.rename(ours.path / path.name)
    with pytest.raises(ChecksumError, match=moved.name):
        read_checkpoint(moved)


def test_checkpoints_left_in_a_finished_run_are_removed_at_the_next_start(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    folder.save_checkpoint({"epoch": torch.tensor(1)})
    folder.begin(CONFIGURATION, DATA)
    assert folder.checkpoints == []


# The data of a run


def test_other_data_is_rejected_and_the_different_part_is_named(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    folder.begin(CONFIGURATION, DATA)
    folder.check_data(DATA)
    far = {"features": "other", "feature_sums": (1.1, -2.0, 10.0)}
    for changes in ({"graph": "other"}, {"labels": "other"}, {"splits": "other"}, far):
        other = replace(DATA, **changes)
        for attempt in (folder.check_data, lambda data: folder.begin(CONFIGURATION, data)):
            with pytest.raises(CanetError, match=next(iter(changes))):
                attempt(other)


def test_rounding_missing_digests_and_other_versions_are_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished_run(tmp_path / "run")
    with pytest.warns(InputWarning, match="rounding"):
        folder.check_data(replace(DATA, features="other", feature_sums=(1.0 + 1e-4, -2.0, 10.0)))
    RunFolder(tmp_path / "old").begin(CONFIGURATION)
    with pytest.warns(InputWarning, match="no digest"):
        RunFolder(tmp_path / "old").begin(CONFIGURATION, DATA)
    monkeypatch.setattr(run_folder, "__version__", "99.1")
    with pytest.warns(InputWarning, match=r"99\.1"):
        folder.check_data(DATA)


# Beginning a run


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2},
        {"protocol": "disjoint"},
        {"inductive": True},
        {"ood_curves": True},
        {"settings": CONFIGURATION.settings | {"hidden": 9}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_the_folder_of_another_run_is_rejected_and_not_changed(
    other: dict[str, Any], tmp_path: Path
) -> None:
    folder = finished_run(tmp_path)
    before = content_of(tmp_path)
    with pytest.raises(CanetError, match="other settings"):
        folder.begin(replace(CONFIGURATION, **other))
    assert content_of(tmp_path) == before


def test_a_folder_with_the_name_of_another_run_is_rejected(tmp_path: Path) -> None:
    first, second = CONFIGURATION, replace(CONFIGURATION, method="canet")
    for config in (first, second):
        finished_run(tmp_path / config.name / "seed-1", config).read_config()
    swapped = tmp_path / first.name / "seed-1"
    shutil.rmtree(swapped)
    shutil.copytree(tmp_path / second.name / "seed-1", swapped)
    with pytest.raises(CanetError, match=second.name):
        RunFolder(swapped).read_config()
    (tmp_path / second.name / "seed-1").rename(tmp_path / second.name / "seed-2")
    with pytest.raises(CanetError, match="seed-1"):
        RunFolder(tmp_path / second.name / "seed-2").read_config()
    swapped.rename(tmp_path / first.name / "my run")
    assert RunFolder(tmp_path / first.name / "my run").read_config() == second


def test_the_folder_of_the_same_run_is_reused(tmp_path: Path) -> None:
    RunFolder(tmp_path).begin(CONFIGURATION)
    RunFolder(tmp_path).begin(CONFIGURATION)
    content = json.loads((tmp_path / CONFIG).read_text())
    assert content == {"config": asdict(CONFIGURATION), "data": None, "canet": __version__}


def test_a_folder_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CanetError, match="file'"):
        RunFolder(tmp_path / "file").begin(CONFIGURATION)


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", ChecksumError), (b"\xff\xfe", ChecksumError), (b"null", VersionError)],
)
def test_an_unfinished_run_whose_config_cannot_be_read_is_an_error(
    content: bytes, error: type[CanetError], tmp_path: Path
) -> None:
    (tmp_path / CONFIG).write_bytes(content)
    with pytest.raises(error, match=CONFIG):
        RunFolder(tmp_path).begin(CONFIGURATION, DATA)


# Weights


def test_missing_weights_and_those_of_another_model_are_errors(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=WEIGHTS):
        RunFolder(tmp_path).load_weights(nn.Linear(3, 2))
    folder = finished_run(tmp_path)
    for model in (nn.Linear(4, 2), nn.Bilinear(3, 3, 2)):
        with pytest.raises(CanetError, match=WEIGHTS):
            folder.load_weights(model)


# Many runs


def test_find_runs_returns_all_finished_runs_below_a_folder(tmp_path: Path) -> None:
    names = ["b/seed-1", "b/seed-0", "a", "done"]
    for name in names:
        finished_run(tmp_path / name)
    RunFolder(tmp_path / "unfinished").begin(CONFIGURATION)
    found = [run.path for run in find_runs(tmp_path)]
    assert found == [tmp_path / name for name in sorted(names)]
    assert [run.path for run in find_runs(tmp_path / "a")] == [tmp_path / "a"]
    for name in ("absent", "unfinished", "a/config.json"):
        with pytest.raises(CanetError, match=name):
            find_runs(tmp_path / name)


def test_runs_share_a_folder_name_if_and_only_if_they_differ_only_in_the_seed() -> None:
    name = CONFIGURATION.name
    assert name.startswith("tiny-erm-gcn-")
    assert replace(CONFIGURATION, seed=5).name == name
    others = [
        replace(CONFIGURATION, data_seed=1),
        replace(CONFIGURATION, inductive=True),
        replace(CONFIGURATION, generator="redrawn"),
        replace(CONFIGURATION, settings=CONFIGURATION.settings | {"hidden": 9}),
    ]
    assert len({name, *(other.name for other in others)}) == 5


def test_groups_are_sorted_by_seed_and_copies_count_once() -> None:
    other = replace(CONFIGURATION, data_seed=1)
    runs = [(replace(CONFIGURATION, seed=3), "a"), (other, "b"), (CONFIGURATION, "c")]
    assert group_by_configuration([*runs, (CONFIGURATION, "copy")]) == [{1: "c", 3: "a"}, {1: "b"}]


def names_below(root: Path) -> list[str]:
    return [folder.relative_to(root).as_posix() for folder in folders_below(root)]


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)


def test_folders_are_sorted_by_name(tmp_path: Path) -> None:
    make(tmp_path, "b/2", "b/10", "a")
    (tmp_path / "file").touch()
    assert names_below(tmp_path) == [".", "a", "b", "b/10", "b/2"]


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/deep", "root")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    assert names_below(tmp_path / "root") == [".", "link", "link/deep"]


def test_circular_links_are_followed_once(tmp_path: Path) -> None:
    make(tmp_path, "a/b")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to("self")
    (tmp_path / "again").symlink_to("a")
    (tmp_path / "nowhere").symlink_to("absent")
    assert names_below(tmp_path) == [".", "a", "a/b"]


@pytest.mark.parametrize("name", ["absent", "file"])
def test_a_file_or_a_missing_folder_has_no_folders(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert list(folders_below(tmp_path / name)) == []


def test_a_folder_that_cannot_be_read_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a/below", "b")
    scandir = os.scandir

    def scandir_without_permission(path: str) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "a":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir_without_permission)
    with pytest.warns(InputWarning, match="Permission denied"):
        assert names_below(tmp_path) == [".", "b"]

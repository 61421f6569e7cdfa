import hashlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import canet
from canet.data.digest import DataDigest
from canet.errors import CanetError, InputWarning
from canet.store import RunConfig, RunFolder, find_runs
from canet.store import run_folder as checkpoint
from canet.store.config import grouped
from canet.store.record import MARKER, read_record
from canet.store.run_folder import CONFIG, METRICS, RESULT, WEIGHTS

CONFIGURATION = RunConfig(
    task="tiny",
    protocol="paper",
    data_seed=0,
    features="original",
    inductive=False,
    method="erm",
    backbone="gcn",
    settings={"hidden": 8, "weight_decay": 5e-5, "estimator_learning_rate": None},
    seed=1,
)
METRIC_CURVES = {"loss": [1.5, 0.1 + 0.2], "valid": [50.0, 200 / 3]}
RESULTS = {"scores": {"train": 75.0}, "selection": "best validation"}
DATA = DataDigest("graph", "labels", "splits", "features", (1.0, -2.0, 10.0))


def finished_run(path: Path, config: RunConfig = CONFIGURATION) -> RunFolder:
    place = RunFolder(path)
    place.begin(config, DATA)
    place.finish(nn.Linear(3, 2).state_dict(), METRIC_CURVES, RESULTS)
    return place


def one_line(caught: pytest.ExceptionInfo[CanetError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_finished_run_holds_every_file_and_no_other(tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run")
    place.begin(CONFIGURATION, DATA)
    place.save_checkpoint({"epoch": torch.tensor(1)})
    assert not place.finished
    finished_run(place.path)
    assert place.finished
    names = sorted(path.name for path in place.path.iterdir())
    assert names == sorted([CONFIG, METRICS, RESULT, WEIGHTS, MARKER])


def test_the_record_has_the_checksum_of_every_file(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    assert place.read_record() == {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in (CONFIG, METRICS, RESULT, WEIGHTS)
    }


def test_files_have_the_rights_that_files_usually_get(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        place = finished_run(tmp_path / "run")
        place.save_checkpoint({"epoch": torch.tensor(1)})
    finally:
        os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in place.path.iterdir()} == {0o644}


def test_everything_written_comes_back_exactly(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    assert place.read_config() == CONFIGURATION
    assert place.read_metrics() == METRIC_CURVES
    assert place.read_result() == RESULTS
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    place.load_weights(first)
    place.load_weights(second)
    assert first.weight.equal(second.weight)


@pytest.mark.parametrize("crashing", [WEIGHTS, METRICS, RESULT])
def test_crash_between_two_writes_leaves_a_run_that_is_not_finished(
    crashing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = RunFolder(tmp_path)
    place.begin(CONFIGURATION)
    place.save_checkpoint({"epoch": torch.tensor(1)})

    def crash(path: Path, content: Any, write: Any) -> str:
        if path.name == crashing:
            raise KeyboardInterrupt
        return write(path, content)

    for name in ("write_json", "write_tensors"):
        write = getattr(checkpoint, name)
        monkeypatch.setattr(checkpoint, name, lambda p, c, write=write: crash(p, c, write))
    with pytest.raises(KeyboardInterrupt):
        place.finish(nn.Linear(3, 2).state_dict(), METRIC_CURVES, RESULTS)
    assert not place.finished
    assert len(place.checkpoints) == 1
    with pytest.raises(CanetError, match="no finished run"):
        find_runs(tmp_path)


def test_marker_is_written_when_all_else_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present: list[set[str]] = []
    write = checkpoint.write_record

    def look_and_write(folder: Path, files: dict[str, str]) -> None:
        present.append({path.name for path in folder.iterdir()} - {".lock"})
        write(folder, files)

    monkeypatch.setattr(checkpoint, "write_record", look_and_write)
    finished_run(tmp_path)
    assert present == [{CONFIG, METRICS, RESULT, WEIGHTS}]


def test_a_run_is_finished_once(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    place.finish(nn.Linear(3, 2).state_dict(), METRIC_CURVES, RESULTS | {"seconds": 1})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_is_added_to_a_finished_run_is_in_its_record(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    place.add_json("extra.json", {"a": 1})
    place.add_tensors("extra.safetensors", {"a": torch.ones(2)})
    assert place.read_json("extra.json") == {"a": 1}
    assert place.read_tensors("extra.safetensors")["a"].tolist() == [1, 1]
    record = read_record(tmp_path)
    assert record is not None
    assert record.keys() == {CONFIG, METRICS, RESULT, WEIGHTS, "extra.json", "extra.safetensors"}
    (tmp_path / "extra.json").write_text('{"a": 2}')
    with pytest.raises(CanetError, match="is damaged or was changed"):
        place.read_json("extra.json")


def test_an_edited_file_is_refused_in_one_line(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    for name, read in (
        (CONFIG, place.read_config),
        (METRICS, place.read_metrics),
        (RESULT, place.read_result),
        (WEIGHTS, lambda: place.load_weights(nn.Linear(3, 2))),
    ):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
        with pytest.raises(CanetError, match=f"{name}' is damaged or was changed") as caught:
            read()
        one_line(caught)
        (tmp_path / name).write_bytes(content)
        read()


def test_a_run_older_than_checksums_is_read(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    (tmp_path / CONFIG).write_text(json.dumps(asdict(CONFIGURATION)))
    (tmp_path / MARKER).write_bytes(b"")
    assert place.read_record() is None
    assert place.read_config() == CONFIGURATION
    assert place.read_result() == RESULTS
    place.add_json("extra.json", 1)
    assert (tmp_path / MARKER).read_bytes() == b""


def test_an_emptied_marker_of_a_run_with_checksums_is_refused(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    (tmp_path / MARKER).write_bytes(b"")
    with pytest.raises(CanetError, match="done' is damaged"):
        place.read_result()


# The data of a run


def test_other_data_is_refused_by_name_and_the_same_is_not(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    place.begin(CONFIGURATION, DATA)
    place.check_data(DATA)
    far = replace(DATA, features="other", feature_sums=(1.1, -2.0, 10.0))
    for other, part in (
        (replace(DATA, graph="other"), "another graph"),
        (replace(DATA, labels="other"), "other labels"),
        (replace(DATA, splits="other"), "other splits"),
        (far, "other features"),
    ):
        for attempt in (place.check_data, lambda data: place.begin(CONFIGURATION, data)):
            with pytest.raises(CanetError, match=rf"a run on other data \({part}\)") as caught:
                attempt(other)
            assert str(tmp_path) in one_line(caught)


def test_features_that_differ_by_rounding_are_remarked(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    with pytest.warns(InputWarning, match="in their last bits"):
        place.check_data(replace(DATA, features="other", feature_sums=(1.0 + 1e-4, -2.0, 10.0)))


def test_a_run_that_does_not_tell_its_data_is_taken_up_with_a_remark(tmp_path: Path) -> None:
    RunFolder(tmp_path).begin(CONFIGURATION)
    with pytest.warns(InputWarning, match="older than digests"):
        RunFolder(tmp_path).begin(CONFIGURATION, DATA)


def test_a_run_of_another_version_is_remarked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = finished_run(tmp_path)
    monkeypatch.setattr(canet, "__version__", "99.1")
    with pytest.warns(InputWarning, match=r"some runs were begun by canet .*, this is 99\.1"):
        place.check_data(DATA)


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
def test_folder_of_another_run_is_refused_and_left_alone(
    other: dict[str, Any], tmp_path: Path
) -> None:
    place = finished_run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CanetError, match="other settings: choose another folder") as caught:
        place.begin(replace(CONFIGURATION, **other))
    one_line(caught)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_folder_of_the_same_run_is_taken_up_again(tmp_path: Path) -> None:
    RunFolder(tmp_path).begin(CONFIGURATION)
    RunFolder(tmp_path).begin(CONFIGURATION)
    content = json.loads((tmp_path / CONFIG).read_text())
    assert content == asdict(CONFIGURATION) | {"canet": canet.__version__}


def test_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CanetError, match=r"cannot write to '.*file'.*choose another") as caught:
        RunFolder(tmp_path / "file").begin(CONFIGURATION)
    one_line(caught)


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"\xff\xfe", b'{"task": "cora"}', b"[1, 2]", b"null", b"[" * 100_000]
    + [
        json.dumps(asdict(CONFIGURATION) | wrong).encode()
        for wrong in (
            {"task": 3},
            {"settings": None},
            {"seed": "1"},
            {"data": []},
            {"data": {"graph": 1}},
        )
    ],
)
def test_damaged_config_is_told_in_one_line_with_the_mend(damage: bytes, tmp_path: Path) -> None:
    place = RunFolder(tmp_path)
    (tmp_path / CONFIG).write_bytes(damage)
    with pytest.raises(CanetError, match=r"config\.json' is damaged: delete") as caught:
        place.begin(CONFIGURATION, DATA)
    one_line(caught)


@pytest.mark.parametrize(
    "content",
    ['{"scores": ', "[]", "null", "{}", '{"scores": []}', '{"scores": {"train": "75"}}']
    + [
        f'{{"scores": {{"train": {score}}}}}'
        for score in ("null", "true", "1e308", 10**400, "-1", "[1]")
    ],
)
def test_damaged_results_are_told_in_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / RESULT).write_text(content)
    with pytest.raises(CanetError, match=r"result\.json' is damaged") as caught:
        RunFolder(tmp_path).read_result()
    one_line(caught)


def test_damaged_or_missing_curves_are_told_in_one_line(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    (tmp_path / METRICS).unlink()
    with pytest.raises(CanetError, match=r"not a finished run: it has no metrics\.json") as caught:
        place.read_metrics()
    one_line(caught)
    unfinished = RunFolder(tmp_path / "unfinished")
    unfinished.path.mkdir()
    for content in ("[]", '{"loss": 3}', "{"):
        (unfinished.path / METRICS).write_text(content)
        with pytest.raises(CanetError, match=r"metrics\.json' is damaged"):
            unfinished.read_metrics()


@pytest.mark.parametrize("kept", [0, 3, 20, -4], ids=["empty", "start", "header", "most"])
def test_damaged_weights_are_told_in_one_line(kept: int, tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    (tmp_path / WEIGHTS).write_bytes((tmp_path / WEIGHTS).read_bytes()[:kept])
    with pytest.raises(CanetError, match=r"weights\.safetensors' is damaged") as caught:
        place.load_weights(nn.Linear(3, 2))
    one_line(caught)


def test_missing_weights_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CanetError, match=r"weights\.safetensors' is missing") as caught:
        RunFolder(tmp_path).load_weights(nn.Linear(3, 2))
    one_line(caught)


@pytest.mark.parametrize("model", [nn.Linear(4, 2), nn.Bilinear(3, 3, 2)], ids=["shape", "names"])
def test_weights_of_another_model_are_told_in_one_line(model: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(CanetError, match="does not fit the model") as caught:
        finished_run(tmp_path).load_weights(model)
    one_line(caught)


def test_find_runs_gives_the_finished_ones_at_or_below_a_folder(tmp_path: Path) -> None:
    names = ["b/seed-1", "b/seed-0", "a", "done"]
    for name in names:
        finished_run(tmp_path / name)
    RunFolder(tmp_path / "unfinished").begin(CONFIGURATION)
    found = [run.path for run in find_runs(tmp_path)]
    assert found == [tmp_path / name for name in sorted(names)]
    assert [run.path for run in find_runs(tmp_path / "a")] == [tmp_path / "a"]


@pytest.mark.parametrize("where", ["absent", "empty", "empty/file"])
def test_find_runs_where_there_is_none_is_told_in_one_line(where: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "file").touch()
    with pytest.raises(CanetError, match=f"no finished run at '.*{where}'") as caught:
        find_runs(tmp_path / where)
    one_line(caught)


def test_runs_share_a_folder_name_if_and_only_if_they_differ_in_the_seed_alone() -> None:
    name = CONFIGURATION.name
    assert name.startswith("tiny-erm-gcn-")
    assert replace(CONFIGURATION, seed=5).name == name
    others = [
        replace(CONFIGURATION, data_seed=1),
        replace(CONFIGURATION, inductive=True),
        replace(CONFIGURATION, settings=CONFIGURATION.settings | {"hidden": 9}),
    ]
    assert len({name, *(other.name for other in others)}) == 4


def test_runs_behind_a_link_are_found_once(tmp_path: Path) -> None:
    finished_run(tmp_path / "elsewhere" / "seed-0")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "b").symlink_to(tmp_path / "elsewhere" / "seed-0")
    assert [run.path for run in find_runs(tmp_path / "runs")] == [tmp_path / "runs/a/seed-0"]


@pytest.mark.parametrize(
    "changes",
    [
        *({"seed": seed} for seed in (-1, 2**63, 1.0, True, "0", None)),
        *({"data_seed": seed} for seed in (-5, 10**40)),
        *({"settings": {"hidden": value}} for value in ([], {}, [8])),
        *({"settings": {"epochs": value}} for value in ("9", None, 9.5, True)),
        *({"inductive": "yes"}, {"ood_curves": 1}, {"task": "a\nb"}, {"method": "\ud800"}),
    ],
)
def test_what_no_config_can_hold_is_neither_written_nor_read(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(CanetError, match="cannot be kept"):
        RunFolder(tmp_path / "new").begin(replace(CONFIGURATION, **changes))
    assert not (tmp_path / "new").exists()
    (tmp_path / CONFIG).write_text(json.dumps(asdict(CONFIGURATION) | changes))
    with pytest.raises(CanetError, match=r"config\.json' is damaged") as caught:
        RunFolder(tmp_path).read_config()
    one_line(caught)


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_every_seed_that_can_be_is_kept(seed: int, tmp_path: Path) -> None:
    config = replace(CONFIGURATION, seed=seed, data_seed=seed)
    RunFolder(tmp_path).begin(config)
    assert RunFolder(tmp_path).read_config() == config


def test_runs_are_grouped_by_all_but_the_seed_and_the_first_copy_counts() -> None:
    other = replace(CONFIGURATION, backbone="gat")
    seeds = [replace(CONFIGURATION, seed=seed) for seed in (10, 2, 10)]
    runs = [(seeds[0], "a"), (other, "b"), (seeds[1], "c"), (seeds[2], "copy of a")]
    groups = grouped(runs)
    assert groups == [{2: "c", 10: "a"}, {1: "b"}]
    assert [*groups[0]] == [2, 10]

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from canet.errors import CanetError
from canet.training import checkpoint
from canet.training.checkpoint import (
    CHECKPOINT,
    CONFIG,
    MARKER,
    METRICS,
    RESULT,
    WEIGHTS,
    RunConfig,
    RunFolder,
    find_runs,
    optimizer_tensors,
    read_tensors,
    restore_optimizer,
    write_tensors,
)

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


def finished_run(path: Path, config: RunConfig = CONFIGURATION) -> RunFolder:
    place = RunFolder(path)
    place.begin(config)
    place.finish(nn.Linear(3, 2).state_dict(), METRIC_CURVES, RESULTS)
    return place


def one_line(caught: pytest.ExceptionInfo[CanetError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_finished_run_holds_every_file_and_no_other(tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run")
    place.begin(CONFIGURATION)
    place.save_checkpoint({"epoch": torch.tensor(1)})
    assert not place.finished
    finished_run(place.path)
    assert place.finished
    names = sorted(path.name for path in place.path.iterdir())
    assert names == sorted([CONFIG, METRICS, RESULT, WEIGHTS, MARKER])
    assert (place.path / MARKER).read_bytes() == b""


def test_everything_written_comes_back_exactly(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    assert place.read_config() == CONFIGURATION
    assert place.read_metrics() == METRIC_CURVES
    assert place.read_result() == RESULTS
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    place.load_weights(first)
    place.load_weights(second)
    assert first.weight.equal(second.weight)


def test_tensors_come_back_bit_by_bit_with_their_types(tmp_path: Path) -> None:
    tensors = {
        "single": torch.tensor([0.1, -0.0, torch.inf, torch.nan]),
        "double": torch.tensor(1 / 3, dtype=torch.double),
        "whole": torch.tensor(2**60),
        "bytes": torch.get_rng_state(),
        "transposed": torch.arange(6.0).view(2, 3).t(),
        "learning": nn.Parameter(torch.ones(2)),
    }
    write_tensors(tmp_path / "file.safetensors", tensors)
    read = read_tensors(tmp_path / "file.safetensors")
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(read[name], tensor.detach(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("crashing", [WEIGHTS, METRICS, RESULT])
def test_crash_between_two_writes_leaves_a_run_that_is_not_finished(
    crashing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = RunFolder(tmp_path)
    place.begin(CONFIGURATION)
    place.save_checkpoint({"epoch": torch.tensor(1)})

    def crash(path: Path, content: Any, write: Any) -> None:
        if path.name == crashing:
            raise KeyboardInterrupt
        write(path, content)

    for name in ("write_json", "write_tensors"):
        write = getattr(checkpoint, name)
        monkeypatch.setattr(checkpoint, name, lambda p, c, write=write: crash(p, c, write))
    with pytest.raises(KeyboardInterrupt):
        place.finish(nn.Linear(3, 2).state_dict(), METRIC_CURVES, RESULTS)
    assert not place.finished
    assert place.read_checkpoint() is not None
    with pytest.raises(CanetError, match="no finished run"):
        find_runs(tmp_path)


def test_marker_is_written_when_all_else_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present: list[set[str]] = []
    touch = Path.touch

    def look_and_touch(path: Path) -> None:
        present.append({other.name for other in path.parent.iterdir()})
        touch(path)

    monkeypatch.setattr(Path, "touch", look_and_touch)
    finished_run(tmp_path)
    assert present == [{CONFIG, METRICS, RESULT, WEIGHTS}]


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
    assert json.loads((tmp_path / CONFIG).read_text()) == asdict(CONFIGURATION)


def test_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CanetError, match=r"cannot write to '.*file'.*choose another") as caught:
        RunFolder(tmp_path / "file").begin(CONFIGURATION)
    one_line(caught)


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"task": "cora"}', b"[1, 2]"])
def test_damaged_config_is_told_in_one_line_with_the_mend(damage: bytes, tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    (tmp_path / CONFIG).write_bytes(damage)
    with pytest.raises(CanetError, match=r"config\.json' is damaged: delete") as caught:
        place.read_config()
    one_line(caught)


def test_damaged_or_missing_results_are_told_in_one_line(tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    (tmp_path / RESULT).write_text('{"scores": ')
    (tmp_path / METRICS).unlink()
    with pytest.raises(CanetError, match=r"result\.json' is damaged") as caught:
        place.read_result()
    one_line(caught)
    with pytest.raises(CanetError, match=r"not a finished run: it has no metrics\.json") as caught:
        place.read_metrics()
    one_line(caught)


@pytest.mark.parametrize("kept", [0, 3, 20, -4], ids=["empty", "start", "header", "most"])
def test_damaged_weights_are_told_in_one_line(kept: int, tmp_path: Path) -> None:
    place = finished_run(tmp_path)
    (tmp_path / WEIGHTS).write_bytes((tmp_path / WEIGHTS).read_bytes()[:kept])
    with pytest.raises(CanetError, match=r"weights\.safetensors' is damaged: delete") as caught:
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


def test_checkpoint_that_is_absent_or_torn_is_none(tmp_path: Path) -> None:
    place = RunFolder(tmp_path)
    assert place.read_checkpoint() is None
    place.save_checkpoint({"epoch": torch.tensor(7)})
    assert place.read_checkpoint() == {"epoch": torch.tensor(7)}
    whole = (tmp_path / CHECKPOINT).read_bytes()
    for torn in (b"", whole[:5], whole[:-1]):
        (tmp_path / CHECKPOINT).write_bytes(torn)
        assert place.read_checkpoint() is None


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


def test_restored_optimizer_takes_the_same_next_step() -> None:
    def make() -> tuple[nn.Linear, torch.optim.Adam]:
        model = nn.Linear(3, 1)
        with torch.no_grad():
            model.weight.fill_(1.0)
            model.bias.fill_(0.0)
        groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.01}]
        return model, torch.optim.Adam(groups, weight_decay=0.1)

    def step(model: nn.Linear, adam: torch.optim.Adam) -> None:
        adam.zero_grad()
        model(torch.tensor([[1.0, 2.0, 3.0]])).square().sum().backward()
        adam.step()

    model, adam = make()
    for _ in range(3):
        step(model, adam)
    copy, restored = make()
    copy.load_state_dict(model.state_dict())
    restore_optimizer(restored, {k: v.clone() for k, v in optimizer_tensors(adam).items()})
    step(model, adam)
    step(copy, restored)
    assert model.weight.equal(copy.weight)
    assert model.bias.equal(copy.bias)

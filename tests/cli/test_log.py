"""`--log`: TensorBoard event files."""

import sys
from pathlib import Path

import pytest

from canet.errors import CanetError
from canet.util.tensorboard import TensorBoardLog
from tests.support.commands import QUICK, Canet

FACTS = {"model": "erm-gcn without a/b", "seed": 3, "epochs": 2}


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, round(event.value, 6)) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_every_epoch_is_in_the_event_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    log = TensorBoardLog(tmp_path)
    for epoch, (loss, valid) in enumerate([(0.5, 0.25), (0.375, 0.75)], start=1):
        log(FACTS | {"epoch": epoch, "loss": loss, "valid": valid})
    assert scalars(tmp_path / "erm-gcn_without_a_b" / "seed-3") == {
        "loss": [(1, 0.5), (2, 0.375)],
        "valid": [(1, 0.25), (2, 0.75)],
    }


def test_a_missing_package_is_a_user_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(CanetError, match="pip install tensorboard"):
        TensorBoardLog(tmp_path)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_train_logs_every_run(tmp_path: Path, jobs: int, canet: Canet) -> None:
    pytest.importorskip("tensorboard")
    options = ("--method", "erm", "--seeds", 2, "--jobs", jobs, *QUICK, "--quiet")
    answer = canet("train", "synthetic", *options, "--log", tmp_path / "events")
    assert (answer.code, answer.err) == (0, "")
    for seed in range(2):
        found = scalars(tmp_path / "events" / "erm-gcn" / f"seed-{seed}")
        assert [step for step, _ in found["valid"]] == [1, 2, 3]


def test_log_on_a_cluster_is_rejected(canet: Canet) -> None:
    assert "--ray" in canet("train", "synthetic", "--log", "events", "--ray", "auto").complaint

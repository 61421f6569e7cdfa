"""`auto` on the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from canet.estimator.classifier import NodeClassifier
from canet.models import Network
from tests.support.commands import Canet, call
from tests.support.user_tables import write_users

FIT = ("fit", "graph", "--label", "topic", "--undirected", "--epochs", 3, "--set", "hidden=8")


@pytest.fixture
def place(tmp_path: Path, few_models: None) -> Path:
    write_users(tmp_path / "graph", 120, 0)
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*were training nodes")
def test_fit_says_what_was_chosen_and_why(place: Path) -> None:
    answer = call(place, *FIT, "--device", "cpu", "--out", "model")
    assert answer.code == 0
    for words in ("erm-mlp", "of 3 models", "largest class", "held-out parts"):
        assert words in answer.out
    assert not (place / "model" / ".checkpoints").exists()
    assert call(place, "predict", "model", "graph", "--out", "p.csv").code == 0
    assert "auto, 3 classes" in call(place, "diagnose", "model", "graph").out


@pytest.mark.filterwarnings("default:the time limit was reached")
def test_what_the_time_limit_left_out_is_named_and_has_no_scores(place: Path) -> None:
    how = ("--device", "cpu", "--time-limit", 0, "--out", "model", "--json")
    answer = call(place, *FIT, *how)
    assert "1 of 3 models were compared" in answer.err
    assert "NaN" not in answer.out
    content = json.loads(answer.out)
    notes = {row["model"]: row["note"] for row in content["leaderboard"]}
    assert notes["erm-mlp"] == "the time limit was reached"
    assert "1 of 1 models" in content["summary"]
    table = (place / "model" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "nan" not in table
    assert call(place, "predict", "model", "graph", "--out", "p.csv").code == 0


def test_a_fit_that_was_stopped_continues(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = call(place, *FIT, "--device", "cpu", "--out", "whole", "--json").content
    real, calls = Network.fit_together, list[int]()

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(Network, "fit_together", counted)
    stopped = call(place, *FIT, "--device", "cpu", "--out", "half", "--quiet")
    assert stopped.code == 130
    assert (place / "half" / ".checkpoints").is_dir()
    half = call(place, *FIT, "--device", "cpu", "--out", "half", "--json").content
    assert len(calls) == 7  # two networks on three graphs, one of them begun twice
    for content in (whole, half):
        del content["model"]
        for row in content["leaderboard"]:
            del row["seconds"]
    assert half == whole


def test_a_second_fit_into_the_same_folder_waits(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, second = NodeClassifier.save, list[Any]()

    def save(model: NodeClassifier, *args: Any, **options: Any) -> None:
        command = [sys.executable, "-m", "canet", *map(str, FIT), "--seed", "1", "--out", "model"]
        process = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True)
        assert process.stderr
        assert "waiting" in process.stderr.readline()
        second.append(process)
        real(model, *args, **options)

    monkeypatch.setattr(NodeClassifier, "save", save)
    assert call(place, *FIT, "--device", "cpu", "--out", "model", "--quiet").code == 0
    _, error = second[0].communicate(timeout=120)
    assert second[0].returncode == 2
    assert "already contains a model" in error


@pytest.mark.slow
def test_processes_choose_as_one_does(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    one, two = (
        call(place, *FIT, "--device", "cpu", "--jobs", jobs, "--out", f"m{jobs}", "--json").content
        for jobs in (1, 2)
    )
    assert one["scores"] == two["scores"]


def test_a_run_of_auto_is_scored_again_and_reported(
    canet: Canet, work: Path, few_models: None
) -> None:
    how = ("--epochs", 2, "--set", "hidden=8", "--device", "cpu", "--json")
    content = canet("train", "synthetic", "--method", "auto", *how).content
    assert (content["method"], content["backbone"]) == ("auto", "auto")
    assert content["selection"] == "held-out likelihood"
    again = canet("evaluate", "runs", "--device", "cpu", "--json").content
    assert again["scores"] == content["scores"]
    canet("train", "synthetic", "--method", "erm", *how)
    assert canet("report", "runs", "-o", "report.html").code == 0
    page = (work / "report.html").read_text(encoding="utf-8")
    assert ">Auto<" in page

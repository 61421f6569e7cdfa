import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from canet.data import CENTRED_PER_GRAPH, WITHOUT_SPURIOUS, load_task
from canet.data.benchmarks import synthetic
from canet.data.benchmarks.spurious import centred_per_graph, without_spurious_columns
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.methods import get_method
from canet.models import Run, Trainer
from canet.runs.evaluate import difference, evaluate_runs, load_task_of, open_learner
from canet.settings import override
from canet.store import RunFolder
from tests.support.commands import files_of


@pytest.fixture(scope="module")
def task() -> Iterator[ShiftTask]:
    """The embedded task with few users, and another data seed and protocol than the defaults."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "NUM_USERS", 300)
        yield load_task("synthetic", data_seed=2, protocol="disjoint")


def train(
    task: ShiftTask, folder: Path, method: str = "erm", backbone: str = "gcn", seed: int = 0
) -> Run:
    settings = override(get_method(method).settings_type(), {"epochs": 2, "hidden": 4})
    return Trainer(task, method, backbone, settings, "cpu").run(seed, folder)


@pytest.mark.parametrize(("method", "backbone"), [("erm", "gat"), ("canet", "gcn")])
def test_scores_equal_those_of_training_to_the_last_bit(
    method: str, backbone: str, task: ShiftTask, tmp_path: Path
) -> None:
    run = train(task, tmp_path / "run", method, backbone)
    (summary,) = evaluate_runs(tmp_path / "run", "cpu")
    scores = summary["scores"]
    assert (summary["protocol"], summary["data_seed"]) == ("disjoint", 2)
    for split in ("train", "valid", "test_id"):
        assert scores[split]["values"] == [run.result.scores[split]]
    for name, spread in scores["test_ood"].items():
        assert spread["values"] == [run.result.scores[f"ood/{name}"]]


def test_scores_come_from_the_weights_and_not_from_the_result(
    task: ShiftTask, tmp_path: Path
) -> None:
    train(task, tmp_path / "a", seed=0)
    other = train(task, tmp_path / "b", seed=1)
    weights = "weights.safetensors"
    tensors = RunFolder(tmp_path / "b").read_tensors(weights)
    RunFolder(tmp_path / "a").add_tensors(weights, tensors)
    (summary,) = evaluate_runs(tmp_path / "a", "cpu")
    assert summary["scores"]["test_id"]["values"] == [other.result.scores["test_id"]]
    (line,) = summary["differences"]
    assert line.startswith(f"'{tmp_path / 'a'}': ")


def test_a_run_on_other_data_is_rejected(
    task: ShiftTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(task, tmp_path / "run")
    monkeypatch.setattr(synthetic, "NUM_USERS", 301)
    with pytest.raises(CanetError, match=r"run' .*\(another graph\)"):
        evaluate_runs(tmp_path, "cpu")


def test_differences_within_the_tolerance_are_ignored() -> None:
    stored = {"train": 0.5, "valid": math.nan, "ood/a": 0.3}
    assert difference(stored, stored, 0.0) == ""
    assert difference(stored | {"train": 0.504, "ood/a": 0.296}, stored, 0.005) == ""
    line = difference(stored | {"train": 0.504, "ood/a": 0.29}, stored, 0.005)
    for part in ("ood/a", "29.00 %", "30.00 %"):
        assert part in line
    assert "3.00 %" in difference(stored | {"valid": 0.03}, stored, 0.005)


def test_runs_that_differ_only_in_the_seed_have_one_summary_sorted_by_seed(
    task: ShiftTask, tmp_path: Path
) -> None:
    runs = {seed: train(task, tmp_path / f"seed-{seed}", seed=seed) for seed in (10, 2)}
    train(task, tmp_path / "other", backbone="gat")
    first, second = evaluate_runs(tmp_path, "cpu")
    assert (first["backbone"], first["seeds"]) == ("gat", [0])
    assert (second["backbone"], second["seeds"]) == ("gcn", [2, 10])
    values = [runs[seed].result.scores["valid"] for seed in (2, 10)]
    assert second["scores"]["valid"]["values"] == values


def test_evaluating_changes_no_file(task: ShiftTask, tmp_path: Path) -> None:
    train(task, tmp_path / "run")
    before = files_of(tmp_path)
    evaluate_runs(tmp_path, "cpu")
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(("features", "inductive"), [(None, True), ("structural", True)])
def test_the_task_of_a_run_is_loaded_again(
    features: str | None, inductive: bool, small_root: Path
) -> None:
    task = load_task("arxiv", small_root, 3, features=features, inductive=inductive)
    config = Trainer(task, "erm", "gcn", device="cpu").config()
    again = load_task_of(config, small_root)
    assert open_learner(config, "cpu").config(again) == config
    assert again.data.x.equal(task.data.x)
    assert again.train.equal(task.train)


@pytest.mark.parametrize(
    ("view", "features"),
    [(without_spurious_columns, WITHOUT_SPURIOUS), (centred_per_graph, CENTRED_PER_GRAPH)],
    ids=["without spurious columns", "centred per graph"],
)
def test_the_task_of_a_control_is_loaded_again(
    view: Callable[[ShiftTask], ShiftTask], features: str, task: ShiftTask, tmp_path: Path
) -> None:
    run = train(view(task), tmp_path)
    (summary,) = evaluate_runs(tmp_path, "cpu")
    assert summary["features"] == features
    assert summary["scores"]["test_id"]["values"] == [run.result.scores["test_id"]]

"""`auto` rates models under simulated shift, and averages the best."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch

import canet
from canet.data.graph_data import GraphData
from canet.data.task import ShiftTask
from canet.errors import CanetError, InputError, InputWarning
from canet.models import Auto, Fitted, Options
from canet.models.auto import AutoSettings, with_weights
from canet.models.base import WORK_FOLDER
from canet.models.portfolio import NEWEST, PRESETS, RECIPES, Recipe
from canet.store.result import Candidate
from canet.store.run_folder import find_runs
from canet.training import Trainer
from canet.util.processes import Processes
from tests.support.small_task import FEW, INSIDE, small_task
from tests.support.user_graphs import small_user_graph

QUICK = AutoSettings(epochs=4, hidden=8)


def run(
    seed: int = 0, folder: Path | None = None, task: ShiftTask | None = None, **how: Any
) -> Fitted:
    settings = replace(QUICK, time_limit=how.pop("time_limit", QUICK.time_limit))
    (found,) = Auto(settings, Options("cpu", **how)).run(task or small_task(), {seed: folder})
    return found


def same(one: Fitted, other: Fitted) -> bool:
    """Whether two runs are the same, except for their times."""
    (about, first), (other_about, second) = one.state(), other.state()
    boards = [[replace(c, seconds=0) for c in found.result.candidates] for found in (one, other)]
    return (
        boards[0] == boards[1]
        and one.result.scores == other.result.scores
        and about == other_about
        and list(first) == list(second)
        and all(first[name].equal(second[name]) for name in first)
    )


def candidate(name: str, validation: float, *shifts: float) -> Candidate:
    scores = {str(i): score for i, score in enumerate(shifts)}
    return Candidate(name, validation, scores, 0.0, 1.0)


def test_the_best_half_by_validation_and_held_out_parts_has_the_weight() -> None:
    tried = [
        candidate("a", 90.0, 10.0, 30.0),  # 55
        candidate("b", 70.0, 60.0, 50.0),  # 62.5
        candidate("c", 60.0),  # no part: 60
        candidate("d", 50.0, 50.0, 70.0),  # 55: a tie goes to the earlier
        candidate("e", 0.0, 100.0, 100.0),
    ]
    assert [one.rating for one in tried] == [55.0, 62.5, 60.0, 55.0, 50.0]
    assert [one.weight for one in with_weights(tried)] == [1 / 3, 1 / 3, 1 / 3, 0, 0]
    many = [candidate(str(i), float(i)) for i in range(20)]
    assert [one.name for one in with_weights(many) if one.weight] == ["15", "16", "17", "18", "19"]


def test_larger_presets_contain_smaller_ones_without_duplicates() -> None:
    assert PRESETS["fast-1"] == PRESETS["robust-1"][:3]
    assert PRESETS["robust-1"] == PRESETS["best-1"][: len(PRESETS["robust-1"])]
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)


def test_a_preset_is_kept_with_its_number() -> None:
    assert AutoSettings().preset == "robust-1"
    assert AutoSettings(preset="fast") == AutoSettings(preset="fast-1")
    assert set(PRESETS) == set(NEWEST.values())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_model_trains_with_its_own_settings_and_those_of_all(
    recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = recipe.settings(QUICK)
    assert (settings.epochs, settings.hidden) == (4, 8)
    assert all(getattr(settings, name) == value for name, value in recipe.changes.items())
    monkeypatch.setitem(PRESETS, "robust-1", (recipe,))
    average = run()
    (found,), (member,) = average.result.candidates, average.state()[0]["members"]
    assert (member["method"], member["backbone"]) == (recipe.method, recipe.backbone)
    assert member["settings"] == asdict(settings)
    assert found.weight == 1


def test_candidates_have_the_scores_of_trainings_one_by_one(few_models: None) -> None:
    from canet.models.shifts import HELD_OUT, simulate_shifts

    task, chosen = small_task(), run(3)
    for recipe, found in zip(PRESETS["robust-1"], chosen.result.candidates, strict=True):

        def score(part: ShiftTask, split: str, recipe: Any = recipe) -> float:
            how = recipe.method, recipe.backbone, recipe.settings(QUICK), "cpu"
            return Trainer(part, *how).run(3).result.scores[split]

        assert found.validation == score(task, "valid")
        assert found.shifts == {
            shift.name: score(shift.task, f"ood/{HELD_OUT}") for shift in simulate_shifts(task)
        }
        assert found.rating == (found.validation + mean(found.shifts.values())) / 2


def test_scores_are_those_of_averaged_probabilities(few_models: None) -> None:
    task, chosen = small_task(), run()
    members = [c for c in chosen.result.candidates if c.weight]
    parts = []
    for member in members:
        (recipe,) = [recipe for recipe in PRESETS["robust-1"] if recipe.name == member.name]
        alone = recipe.learner(QUICK, Options("cpu")).trainer(task)
        method = alone.run(0).method.eval()
        with torch.no_grad():
            batch = alone.fields.batch("ood/later")
            parts.append(method.predict(batch).double().softmax(dim=1))
    right = (sum(parts).argmax(dim=1) == task.data.y[task.test_ood["later"]]).double().mean()
    assert chosen.result.scores["ood/later"] == pytest.approx(float(right), abs=1e-9)


def test_the_same_seed_is_the_same_choice_to_the_bit(few_models: None) -> None:
    assert same(run(1), run(1))
    assert not same(run(1), run(2))


def test_test_labels_and_shifted_features_change_no_bit_of_the_choice(few_models: None) -> None:
    task = small_task()
    x, y = task.data.x.clone(), task.data.y.clone()
    x[INSIDE:] = torch.randn_like(x[INSIDE:]) * 100
    y[180:] = y[180:].flip(0)
    garbage = replace(task, data=GraphData(x=x, y=y, edge_index=task.data.edge_index))
    clean, other = run(task=task), run(task=garbage)
    for split in ("test_id", "ood/later"):
        other.result.scores[split] = clean.result.scores[split]
    assert same(clean, other)


def test_a_choice_that_was_stopped_continues_to_the_same_bits(
    few_models: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, real, calls = run(0, tmp_path / "whole"), Trainer.run_together, []

    def stopping(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(Trainer, "run_together", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(0, tmp_path / "half")
    assert len(list((tmp_path / "half" / WORK_FOLDER).rglob("done"))) == 6
    assert same(whole, run(0, tmp_path / "half"))
    for name in ("whole", "half"):
        assert not (tmp_path / name / WORK_FOLDER).exists()
    read = run(0, tmp_path / "half")
    assert same(whole, read)
    assert Auto(QUICK, Options("cpu")).scores(small_task(), read) == whole.result.scores


def test_processes_give_the_bits_of_one_process(few_models: None, tmp_path: Path) -> None:
    with Processes(2) as pool:
        assert same(run(), run(pool=pool))
        assert same(run(), run(0, tmp_path / "kept", pool=pool))


@pytest.mark.slow
def test_a_cluster_gives_the_bits_of_one_process(few_models: None, cluster: Any) -> None:
    from canet.util.ray import Cluster

    with Cluster(cluster.address, 1, "cpu") as pool:
        assert same(run(), run(pool=pool))


def test_a_time_limit_cuts_the_list_of_models(few_models: None) -> None:
    assert [c.name for c in run(time_limit=0).result.candidates] == ["erm-sage"]
    assert len(run(time_limit=3600).result.candidates) == 3


def test_a_choice_with_another_time_limit_is_another_run(few_models: None, tmp_path: Path) -> None:
    run(0, tmp_path, time_limit=0)
    with pytest.raises(CanetError, match="other settings"):
        run(0, tmp_path)


@pytest.mark.parametrize("file", ["weights.safetensors", "done", "config.json"])
def test_a_damaged_part_is_trained_again(file: str, few_models: None, tmp_path: Path) -> None:
    whole = run()
    work = tmp_path / WORK_FOLDER
    list(islice(Auto(QUICK, Options("cpu")).try_all(small_task(), 0, work), 2))
    damaged = work / "0" / "0" / "seed-0" / file
    damaged.write_bytes(damaged.read_bytes()[:-3] + b"   ")
    with pytest.warns(InputWarning, match="trained again"):
        assert same(run(0, tmp_path), whole)


def test_the_epochs_of_all_trainings_are_reported(few_models: None) -> None:
    result = run().result
    trainings = len(FEW) * (1 + len(result.candidates[0].shifts))
    assert result.epochs == trainings * QUICK.epochs
    assert result.seconds == pytest.approx(sum(one.seconds for one in result.candidates))


def test_class_weights_are_part_of_a_stored_choice(few_models: None, tmp_path: Path) -> None:
    weights = torch.tensor([1.0, 2.0, 3.0])
    weighted = run(0, tmp_path, class_weight=weights)
    assert not same(weighted, run())
    assert same(weighted, run(0, tmp_path, class_weight=weights))
    with pytest.raises(CanetError, match="other labels"):
        run(0, tmp_path)


def test_a_model_that_fails_is_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    intervening = Recipe("canet", "gcn", {"interventions": "inferred"})
    task = small_task()
    one_column = replace(
        task, data=GraphData(x=task.data.x[:, :1], y=task.data.y, edge_index=task.data.edge_index)
    )
    monkeypatch.setitem(PRESETS, "robust-1", (intervening, Recipe("erm", "mlp")))
    with pytest.warns(InputWarning, match="feature columns"):
        found = run(task=one_column).result.candidates
    assert [one.name for one in found] == ["erm-mlp"]
    monkeypatch.setitem(PRESETS, "robust-1", (intervening,))
    with pytest.warns(InputWarning), pytest.raises(CanetError, match="no model"):
        run(task=one_column)


def test_unfinished_trainings_are_no_runs(few_models: None, tmp_path: Path) -> None:
    list(Auto(QUICK).try_all(small_task(), 0, tmp_path / "run" / WORK_FOLDER))
    with pytest.raises(CanetError, match="no finished run"):
        find_runs(tmp_path)


def test_ood_curves_are_rejected() -> None:
    with pytest.raises(CanetError, match="ood-curves"):
        Auto(QUICK).run(small_task(), {0: None}, ood_curves=True)


def fitted(**params: Any) -> canet.NodeClassifier:
    usual = {"epochs": 4, "hidden": 8, "device": "cpu", "verbose": 0}
    return canet.NodeClassifier(**usual | params).fit(small_user_graph())


def test_a_classifier_chooses_unless_a_method_is_named(few_models: None) -> None:
    model = fitted()
    board = model.leaderboard_rows()
    assert [row["rating"] for row in board] == sorted((r["rating"] for r in board), reverse=True)
    assert {"without north", "without south"} <= set(board[0])
    assert sum(row["weight"] for row in board) == pytest.approx(1)
    assert sorted(row["model"] for row in board) == sorted(r.name for r in PRESETS["robust-1"])
    assert model.predict_proba(small_user_graph()).shape == (60, 3)
    assert model.embed(small_user_graph()).shape == (60, 16)
    assert fitted(method="erm").leaderboard_rows() == []
    prepared = model.prepare(small_user_graph())
    assert np.array_equal(model.predict_proba(prepared), model.predict_proba(small_user_graph()))
    with pytest.raises(InputError, match="another model"):
        fitted().predict(prepared)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"backbone": "gcn"}, "backbone"),
        ({"preset": "fastest"}, "fast, robust, best"),
        ({"num_environments": 3}, "'canet'"),
        ({"n_jobs": 0}, "jobs is 0"),
    ],
)
def test_arguments_that_auto_does_not_support_are_rejected(
    params: dict[str, Any], words: str
) -> None:
    with pytest.raises(CanetError, match=words):
        fitted(**params)


PREDICT = """
import sys, numpy, canet
from tests.support.user_graphs import small_user_graph
numpy.save(sys.argv[2], canet.load(sys.argv[1]).predict_proba(small_user_graph()))
"""


@pytest.mark.slow
def test_a_saved_ensemble_predicts_the_same_bits_in_another_process(
    few_models: None, tmp_path: Path
) -> None:
    model = fitted(class_weight="balanced", checkpoints=tmp_path / "work")
    model.save(tmp_path / "model")
    command = [sys.executable, "-c", PREDICT, tmp_path / "model", tmp_path / "p.npy"]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    assert np.array_equal(np.load(tmp_path / "p.npy"), model.predict_proba(small_user_graph()))
    again = canet.load(tmp_path / "model")
    assert again.leaderboard_rows() == model.leaderboard_rows()


def test_a_diagnosis_changes_columns_and_edges_of_every_member(few_models: None) -> None:
    from canet.diagnosis.graph import read_graph

    model, data = fitted(), small_user_graph()
    graph = read_graph(model, data)
    assert len(graph.members) == 2
    changed = data.clone()
    changed.x = data.x.clone()
    changed.x[:, 1] = 0
    mapped = graph.mapped - graph.map_columns(np.array([1]))
    expected = model.predict_proba(changed)
    found = torch.from_numpy(graph.predict_mapped(mapped)).softmax(dim=1).numpy()
    assert np.allclose(found, expected, atol=1e-5)
    fewer = data.clone()
    fewer.edge_index = graph.edge_index[:, ::2]
    found = torch.from_numpy(graph.predict_edges(fewer.edge_index)).softmax(dim=1).numpy()
    assert np.allclose(found, model.predict_proba(fewer), atol=1e-5)
    assert canet.diagnose(model, None, data).model.method == "auto"

"""`auto` compares models under simulated shift, and averages them by their likelihood there."""

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch

import canet
from canet.data.task import ShiftTask
from canet.errors import CanetError, InputError, InputWarning
from canet.models import Auto, Fitted, FittedNetwork, Learner, Network, Options
from canet.models.auto import AVERAGE, LARGEST_CLASS, LATE, AutoSettings
from canet.models.base import WORK_FOLDER
from canet.models.linear import Linear
from canet.models.options import OutOfTime
from canet.models.parts import Parts, weights_of
from canet.models.portfolio import PRESETS, Recipe, recipes_of
from canet.nn import NormalisedGraph
from canet.settings import override
from canet.store.run_folder import find_runs
from canet.util.processes import Processes
from tests.support.pool import LocalPool
from tests.support.small_task import FEW, small_task, with_columns, with_garbage
from tests.support.user_graphs import small_user_graph

QUICK = AutoSettings(epochs=4, hidden=8)


def run(
    seed: int = 0, folder: Path | None = None, task: ShiftTask | None = None, **how: Any
) -> Fitted:
    settings = replace(QUICK, time_limit=how.pop("time_limit", QUICK.time_limit))
    (found,) = Auto(settings, Options("cpu", **how)).run(task or small_task(), {seed: folder})
    return found


@cache
def alone() -> Fitted:
    """The choice of `few_models` with seed 0 in one process."""
    return run()


@contextmanager
def stopped_training(count: int) -> Iterator[None]:
    """Stop, as Ctrl-C does, when another network than the first ones is trained."""
    real, calls = Network.run, itertools.count()

    def stopping(*args: Any, **options: Any) -> Any:
        if next(calls) >= count:
            raise KeyboardInterrupt
        return real(*args, **options)

    with pytest.MonkeyPatch.context() as change:
        change.setattr(Network, "run", stopping)
        yield


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


def test_weights_follow_the_likelihood() -> None:
    weights = weights_of([-1.0, -1.2, -0.6, -2.0])
    kept = np.exp(np.array([-1.0, -1.2, -0.6]) / 0.2)
    assert weights == pytest.approx([*kept / kept.sum(), 0.0])  # the last has less than 2 %
    assert weights_of([-3.0]) == [1.0]
    assert weights_of([-1.0] * 8) == pytest.approx([1 / 8] * 8)
    many = weights_of([-1.0 - 0.001 * i for i in range(12)])
    assert [weight > 0 for weight in many] == [True] * 8 + [False] * 4


def test_likelihoods_are_means_over_parts_and_nodes() -> None:
    task = small_task(sample_weight=torch.rand(300) + 0.1)
    parts = Parts(task, torch.tensor([1.0, 2.0, 3.0]))
    logits = {p: torch.randn(parts.nodes(p).numel(), 3) for p in parts.tasks}
    found = []
    for part, own in parts.tasks.items():
        nodes = own.valid if part == "valid" else own.test_ood["held out"]
        total = weights = 0.0
        for row, node in zip(logits[part].double(), nodes, strict=True):
            label = int(own.data.y[node])
            weight = float(own.data.sample_weight[node]) * (1.0, 2.0, 3.0)[label]
            total += weight * float(torch.log(torch.exp(row[label]) / torch.exp(row).sum()))
            weights += weight
        found.append(total / weights)
    assert len(found) == 5
    assert parts.likelihood(logits) == pytest.approx(mean(found))
    hardest = sorted(zip(found[1:], list(parts.tasks)[1:], strict=True))[:2]
    parts.keep_hardest(logits)
    assert set(parts.tasks) == {"valid", *(name for _, name in hardest)}


def test_the_fast_preset_has_no_networks_and_no_model_occurs_twice() -> None:
    assert {recipe.method for recipe in PRESETS["fast"]} == {"linear", "trees"}
    assert PRESETS["robust"][: len(PRESETS["fast"])] == PRESETS["fast"]
    assert len({recipe.name for recipe in PRESETS["robust"]}) == len(PRESETS["robust"])


def test_a_preset_is_a_list_of_names_or_their_text() -> None:
    text = "fast,erm-sage,linear,erm-gcn,group_dro-gat"
    names = ["fast", "ERM-sage", " linear", "erm", "group_dro-gat", "erm-gcn", "fast"]
    one, other = AutoSettings(preset=names), AutoSettings(preset=text)  # type: ignore[arg-type]
    assert one == other == override(AutoSettings(), {"preset": names})
    assert one.preset == text
    fast = [recipe.name for recipe in PRESETS["fast"]]
    found = [recipe.name for recipe in recipes_of(text, in_batches=False)]
    assert found == [*fast, "erm-sage", "erm-gcn", "group_dro-gat"]  # fast has `linear`
    in_batches = [recipe.name for recipe in recipes_of("robust,canet", in_batches=True)]
    assert in_batches[0] == fast[0]
    assert "canet-gcn" in in_batches
    assert not any("interventions" in name for name in in_batches)


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("erm-sge", "backbone 'sge': did you mean 'sage'"),
        ("ern-sage", "model 'ern': did you mean 'erm'"),
        (["linear", "tree"], "model 'tree': did you mean 'trees'"),
        ("linear-gcn", "'linear' takes no backbone"),
        ("auto", "model 'auto'"),
        ([], "model ''"),
    ],
)
def test_an_unknown_name_in_a_preset_is_one_sentence(preset: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        AutoSettings(preset=preset)


@pytest.mark.parametrize("recipe", PRESETS["robust"][::4] + PRESETS["robust"][9:10], ids=str)
def test_every_model_trains_with_its_own_settings_and_those_of_all(
    recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = recipe.settings(QUICK)
    assert all(getattr(settings, name) == value for name, value in recipe.changes.items())
    if recipe.backbone:
        assert (settings.epochs, settings.hidden) == (4, 8)
    monkeypatch.setitem(PRESETS, "robust", (recipe,))
    average = run()
    found, (member,) = average.result.candidates, average.state()[0]["members"]
    assert [one.weight for one in found] == [1, 0, 0]
    assert [one.name for one in found] == [recipe.name, AVERAGE, LARGEST_CLASS]
    assert member["kind"] == ("network" if recipe.backbone else recipe.method)
    chosen = {"penalty": member["settings"]["penalty"]} if recipe.method == "linear" else {}
    assert member["settings"] == asdict(settings) | chosen


def test_candidates_have_the_scores_of_trainings_one_by_one(few_models: None) -> None:
    task, chosen = small_task(), run(3)
    every = Parts(task).tasks
    for recipe, found in zip(PRESETS["robust"], chosen.result.candidates, strict=False):

        def score(part: str, split: str, recipe: Any = recipe, **how: Any) -> float:
            learner = recipe.learner(QUICK, Options("cpu"), **how)
            return learner.run(every[part], {3: None})[0].result.scores[split]

        assert found.validation == score("valid", "valid")
        how = {}
        if recipe.method == "linear":  # the penalty was chosen on all nodes
            (whole,) = recipe.learner(QUICK, Options("cpu")).run(task, {3: None})
            how = whole.chosen_settings()
        assert len(found.shifts) == 2
        assert found.shifts == {part: score(part, "ood/held out", **how) for part in found.shifts}
        assert found.held_out == mean(found.shifts.values())


def test_scores_are_those_of_averaged_probabilities(few_models: None) -> None:
    task, chosen = small_task(), alone()
    candidates = chosen.result.candidates
    parts = 0.0
    for recipe, found in zip(PRESETS["robust"], candidates, strict=False):
        (model,) = recipe.learner(QUICK, Options("cpu")).run(task, {0: None})
        logits = model.logits(task)
        parts = parts + found.weight * torch.cat(
            [logits[split].double().softmax(dim=1) for split in ("valid", "ood/later")]
        )
    nodes = torch.cat([task.valid, task.test_ood["later"]])
    right = (parts.argmax(dim=1) == task.data.y[nodes]).double()
    assert chosen.result.scores["valid"] == pytest.approx(float(right[:60].mean()), abs=1e-9)
    assert chosen.result.scores["ood/later"] == pytest.approx(float(right[60:].mean()), abs=1e-9)
    average, largest = candidates[-2:]
    assert average.validation == pytest.approx(chosen.result.scores["valid"])
    assert largest.validation == pytest.approx(1 / 3)


def test_the_same_seed_is_the_same_choice_to_the_bit(few_models: None) -> None:
    assert same(run(), alone())
    assert not same(run(1), alone())


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Processes, marks=pytest.mark.slow),
        LocalPool,
        partial(LocalPool, dies=lambda job, number: True),
    ],
)
def test_trees_that_other_processes_train_are_the_same(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = PRESETS["robust"][0], *PRESETS["robust"][4:7]
    monkeypatch.setitem(PRESETS, "robust", (first, others[2], *others[:2]))  # trees come last
    expected = run()
    monkeypatch.setattr(Auto, "_trains_apart", True)
    monkeypatch.setattr("canet.models.auto._processes", kind)
    monkeypatch.setitem(PRESETS, "robust", (first, *others))
    assert same(run(), expected)
    with pytest.warns(InputWarning, match="1 of 4 models"):
        late = run(time_limit=0)
    assert [one.note for one in late.candidates][1:4] == [LATE] * 3


def test_shifted_nodes_and_test_labels_change_no_bit_of_the_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PRESETS, "robust", PRESETS["robust"][3:8])
    task = small_task()
    garbage = with_garbage(task, task.test_ood["later"], task.test_id)
    clean, other = run(task=task), run(task=garbage)
    for split in ("test_id", "ood/later"):
        other.result.scores[split] = clean.result.scores[split]
    assert same(clean, other)


@pytest.mark.filterwarnings("ignore:interventions change")
@pytest.mark.parametrize("recipe", PRESETS["robust"][3:10:2], ids=lambda recipe: recipe.name)
def test_what_is_held_out_changes_no_bit_of_a_training(recipe: Recipe) -> None:
    task = list(Parts(small_task()).tasks.values())[1]
    hidden = (~task.in_distribution).nonzero().squeeze(1)
    states = []
    for one in (task, with_garbage(task, hidden, hidden)):
        (fitted,) = recipe.learner(QUICK, Options("cpu")).run(one, {0: None})
        states.append(fitted.state()[1])
    assert all(states[0][name].equal(states[1][name]) for name in states[0])


def test_a_choice_that_was_stopped_continues_to_the_same_bits(
    few_models: None, tmp_path: Path
) -> None:
    with stopped_training(2), pytest.raises(KeyboardInterrupt):
        run(0, tmp_path / "half")
    assert (
        len(list((tmp_path / "half" / WORK_FOLDER).rglob("done"))) == 5 + 2
    )  # the linear model without every part, two networks
    assert same(alone(), run(0, tmp_path / "half"))
    assert not (tmp_path / "half" / WORK_FOLDER).exists()
    read = run(0, tmp_path / "half")
    assert same(alone(), read)
    assert Auto(QUICK, Options("cpu")).scores(small_task(), read) == alone().result.scores


@pytest.mark.parametrize("kind", [LocalPool, pytest.param(Processes, marks=pytest.mark.slow)])
def test_a_pool_gives_the_bits_of_one_process(kind: Any, few_models: None, tmp_path: Path) -> None:
    with kind(2) as pool:
        assert same(alone(), run(0, tmp_path / "kept", pool=pool))
    assert same(alone(), run(0, tmp_path / "kept"))


def test_a_time_limit_cuts_the_list_of_models(few_models: None) -> None:
    with pytest.warns(InputWarning, match="1 of 3 models were compared"):
        found = run(time_limit=60, begin=time.time() - 100).result.candidates
    assert [one.weight for one in found] == [1, 0, 0, 0, 0]
    assert [one.note for one in found[:3]] == ["", *["the time limit was reached"] * 2]
    assert all(one.weight for one in run(time_limit=3600).result.candidates[:1])


@pytest.mark.parametrize("recipe", PRESETS["robust"][1::4], ids=lambda recipe: recipe.method)
def test_a_time_limit_also_ends_a_training(
    recipe: Any, few_models: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRESETS, "robust", (FEW[0], recipe))
    late = iter([False] * 2)  # the second model starts in time
    monkeypatch.setattr(
        "canet.models.base.time.time", lambda: 0.0 if not next(late, True) else 1e12
    )
    with pytest.warns(InputWarning, match="1 of 2 models were compared"):
        found = run(time_limit=1000).result.candidates
    assert found[1].note == "the time limit was reached"


@pytest.fixture
def ten_seconds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each training takes ten seconds of a clock that starts at 0; the names of those begun."""
    real, begun = Learner.run, list[str]()

    def run(learner: Learner, *args: Any, **options: Any) -> Any:
        begun.append(learner.name)
        return real(learner, *args, **options)

    monkeypatch.setattr(Linear, "run", run)
    monkeypatch.setattr(Network, "run", run)
    monkeypatch.setattr(time, "time", lambda: 10.0 * len(begun))
    return begun


def test_a_training_that_cannot_end_in_time_is_not_begun(
    few_models: None, ten_seconds: list[str]
) -> None:
    with pytest.warns(InputWarning, match="2 of 3 models were compared"):
        found = run(time_limit=95, begin=0.0).result.candidates
    # the linear model with all five parts, a network with two, and the other one only once
    assert ten_seconds == [FEW[0].method] * 5 + [FEW[1].model] * 3 + [FEW[2].model]
    assert [one.note for one in found[:3]] == ["", "", LATE]


def test_the_first_model_is_trained_without_the_parts_for_which_there_is_no_time(
    few_models: None, ten_seconds: list[str]
) -> None:
    with pytest.warns(InputWarning, match="1 of 3 models were compared"):
        found = run(time_limit=25, begin=0.0).result.candidates
    assert ten_seconds[:2] == [FEW[0].method] * 2
    assert len(found[0].shifts) == 1


def test_a_network_that_is_too_slow_ends_long_before_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(0.0, 4.0)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    learner = Network("erm", "gcn", None, Options("cpu", deadline=1000.0))
    with pytest.raises(OutOfTime):
        learner.fit(small_task())
    assert next(clock) < 100


def test_the_time_left_is_that_of_measured_trainings(
    few_models: None, ten_seconds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = list[float]()
    monkeypatch.setattr("canet.models.auto.expect", expected.append)
    run(time_limit=1000, begin=0.0)
    # before the first network, its time is not known: what is left of the limit
    assert expected == [1000, 990, 980, 970, 960, 950, 50, 40, 30, 20, 10]
    expected.clear()
    run()
    assert expected == [math.inf] * 6 + [50, 40, 30, 20, 10]


def test_each_finished_training_logs_one_line(
    few_models: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "canet")
    run()
    names = [record.message.split(",")[0] for record in caplog.records]
    parts = [len([name for name in names if name.startswith(one.name)]) for one in FEW]
    assert parts == [5, 3, 3]
    assert names[-1] == "auto"
    assert len({*names}) == len(names) == 12


def test_each_model_that_another_process_trained_logs_one_line(
    few_models: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "canet")
    run(pool=LocalPool(2))
    names = [one.message.split(",")[0] for one in caplog.records if one.module == "auto"]
    assert names == [one.name for one in FEW[1:]]


def test_an_interrupted_choice_keeps_the_finished_models_if_asked(
    few_models: None, tmp_path: Path
) -> None:
    with stopped_training(0):
        with pytest.raises(KeyboardInterrupt):
            run()
        with pytest.warns(InputWarning, match="stopped: 1 of 3 models were compared"):
            found = run(0, tmp_path, keep_on_interrupt=True)
    assert [one.weight for one in found.candidates[:3]] == [1, 0, 0]
    assert same(alone(), run(0, tmp_path))  # the next call trains the others


def test_a_choice_continues_with_its_models_in_another_order(
    few_models: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stopped_training(2), pytest.raises(KeyboardInterrupt):
        run(0, tmp_path)
    monkeypatch.setitem(PRESETS, "robust", (FEW[0], FEW[2], FEW[1]))  # as for another device
    assert not any(one.note for one in run(0, tmp_path).candidates[:3])


def test_a_choice_with_another_time_limit_is_another_run(few_models: None, tmp_path: Path) -> None:
    run(0, tmp_path, time_limit=500)
    with pytest.raises(CanetError, match="other settings"):
        run(0, tmp_path)


@pytest.mark.parametrize("file", ["weights.safetensors", "done", "config.json"])
def test_a_damaged_part_is_trained_again(file: str, few_models: None, tmp_path: Path) -> None:
    work = tmp_path / WORK_FOLDER
    list(islice(Auto(QUICK, Options("cpu")).try_all(Parts(small_task()), 0, work), 2))
    damaged = work / "erm-mlp" / "0" / "seed-0" / file
    damaged.write_bytes(damaged.read_bytes()[:-3] + b"   ")
    with pytest.warns(InputWarning, match="starts again"):
        assert same(run(0, tmp_path), alone())


def test_the_epochs_of_all_trainings_are_reported(few_models: None) -> None:
    result = alone().result
    assert result.epochs == 2 * 3 * QUICK.epochs  # two networks, on all nodes and two parts
    assert result.seconds == pytest.approx(sum(one.seconds for one in result.candidates))


def test_class_weights_are_part_of_a_stored_choice(few_models: None, tmp_path: Path) -> None:
    weights = torch.tensor([1.0, 2.0, 3.0])
    weighted = run(0, tmp_path, class_weight=weights)
    assert not same(weighted, alone())
    assert same(weighted, run(0, tmp_path, class_weight=weights))
    with pytest.raises(CanetError, match="other labels"):
        run(0, tmp_path)


def test_a_model_that_fails_is_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    intervening = Recipe("canet", "gcn", {"interventions": "inferred"})
    task = small_task()
    one_column = with_columns(task, x=task.data.x[:, :1])
    monkeypatch.setitem(PRESETS, "robust", (intervening, Recipe("erm", "mlp")))
    with pytest.warns(InputWarning, match="feature columns"):
        found = run(task=one_column).result.candidates
    assert [(one.name, one.weight) for one in found[1:2]] == [("erm-mlp", 1)]
    assert "feature columns" in found[0].note
    monkeypatch.setitem(PRESETS, "robust", (intervening,))
    with pytest.warns(InputWarning), pytest.raises(CanetError, match="no model"):
        run(task=one_column)


def test_unfinished_trainings_are_no_runs(few_models: None, tmp_path: Path) -> None:
    list(Auto(QUICK).try_all(Parts(small_task()), 0, tmp_path / "run" / WORK_FOLDER))
    with pytest.raises(CanetError, match="no finished run"):
        find_runs(tmp_path)


def fitted(**params: Any) -> canet.NodeClassifier:
    usual = {"epochs": 4, "hidden": 8, "device": "cpu", "verbose": 0}
    return canet.NodeClassifier(**usual | params).fit(small_user_graph())


def test_a_classifier_chooses_unless_a_method_is_named(few_models: None) -> None:
    model = fitted()
    board = model.leaderboard_rows()
    *rows, average, best, largest = board
    assert [row["weight"] for row in rows] == sorted((r["weight"] for r in rows), reverse=True)
    assert sum(name.startswith("without ") for name in rows[0]) == 2
    assert sum(row["weight"] for row in board) == pytest.approx(1)
    assert sorted(row["model"] for row in rows) == sorted(r.name for r in PRESETS["robust"])
    names = [row["model"] for row in (average, best, largest)]
    assert names == [AVERAGE, "best single model", LARGEST_CLASS]
    assert best["note"] == max(rows, key=lambda row: row["likelihood"])["model"]
    assert f"averages {sum(r['weight'] > 0 for r in rows)} of 3 models" in model.summary()
    assert f"{100 * largest['held_out']:.1f} %" in model.summary()
    assert model.predict_proba(small_user_graph()).shape == (60, 3)
    assert model.embed(small_user_graph()).shape[0] == 60
    assert fitted(method="erm").leaderboard_rows() == []
    prepared = model.prepare(small_user_graph())
    assert np.array_equal(model.predict_proba(prepared), model.predict_proba(small_user_graph()))
    with pytest.raises(InputError, match="another model"):
        fitted().predict(prepared)


def test_networks_that_were_trained_in_batches_are_scored_in_pieces(
    few_models: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = Auto(replace(QUICK, batch_size=20, fanout="3,2"), Options("cpu"))
    (expected,) = learner.run(small_task(), {0: None})
    monkeypatch.setattr("canet.reading.predict.MAX_EDGES", 10)
    monkeypatch.setattr(
        NormalisedGraph, "receptive_field", lambda *_: pytest.fail("may not fit on a GPU")
    )
    (found,) = learner.run(small_task(), {0: None})
    assert any(isinstance(member, FittedNetwork) for member in found.members)
    assert found.result.scores == pytest.approx(expected.result.scores)


def test_a_diagnosis_changes_columns_and_edges_of_every_member(few_models: None) -> None:
    from canet.diagnosis.graph import read_graph

    model, data = fitted(), small_user_graph()
    graph = read_graph(model, data)
    changed, donors = data.clone(), np.roll(np.arange(data.num_nodes), 7)
    changed.x = data.x.clone()
    changed.x[:, 1] = data.x[donors, 1]
    found = torch.from_numpy(graph.replacing(np.array([1]))(donors)).softmax(dim=1).numpy()
    assert np.allclose(found, model.predict_proba(changed), atol=1e-5)
    fewer = data.clone()
    fewer.edge_index = graph.edge_index[:, ::2]
    found = torch.from_numpy(graph.predict_edges(fewer.edge_index)).softmax(dim=1).numpy()
    assert np.allclose(found, model.predict_proba(fewer), atol=1e-5)
    new = small_user_graph(seed=1)
    assert canet.diagnose(model, None, new).model.method == "auto"

"""Trials of a study: which settings are tried, and which trials survive interruptions."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from canet.data import DATASETS, load_task
from canet.errors import CanetError
from canet.methods import METHODS
from canet.search import study as study_module
from canet.search.objective import Objective
from canet.search.search import run_search
from canet.search.study import (
    Plan,
    SamplerName,
    done_trials,
    importances,
    open_journal,
    open_study,
    ranked_trials,
)
from tests.support.finished import make_config

SAMPLERS: tuple[SamplerName, ...] = ("tpe", "random", "grid")
Settings = Mapping[str, Any]


def plan_of(
    sampler: SamplerName = "tpe",
    task: str = "synthetic",
    method: str = "erm",
    backbone: str = "gcn",
) -> Plan:
    return Plan(make_config(task, method, backbone, epochs=60), sampler, seeds=1)


DATA = load_task("synthetic").digest


class Landscape:
    """Replaces an objective: a score for given settings, reported at every epoch."""

    def __init__(self, score: Callable[[Settings], float]) -> None:
        self.score = score
        self.tried: list[dict[str, Any]] = []
        self.epochs: list[int] = []

    def __call__(self, changes: Settings, on_progress: Callable[..., None]) -> float:
        self.tried.append(dict(changes))
        self.epochs.append(0)
        score = self.score(changes)
        for epoch in range(1, 61):
            self.epochs[-1] = epoch
            on_progress(epoch, 60, score)
        return score


def smooth(settings: Settings) -> float:
    """A score that is best in the middle of the ranges and differs for most settings."""
    return -abs(settings["hidden"] - 64) / 64 - settings["dropout"] + settings["learning_rate"]


Search = Callable[..., optuna.Study]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """A function that searches a plan with an objective until there are enough trials."""

    def run(plan: Plan, trials: int, objective: Any) -> optuna.Study:
        monkeypatch.setattr(Objective, "loaded", (None, DATA))
        monkeypatch.setattr("canet.search.search.importances", lambda study: {})  # they are slow
        monkeypatch.setattr(Objective, "__call__", lambda self, *given: objective(*given))
        run_search(plan, trials, tmp_path, device="cpu", quiet=True)
        return open_study(plan, open_journal(tmp_path / "journal.log"))

    return run


@pytest.fixture
def few_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search only width and dropout: twelve combinations."""
    describe = study_module.describe_settings

    def described(settings_type: type) -> dict[str, dict[str, Any]]:
        about = describe(settings_type)
        return {name: about[name] for name in ("hidden", "dropout")}

    monkeypatch.setattr(study_module, "describe_settings", described)


# Plans


def test_ranges_are_the_grid_of_the_paper() -> None:
    ranges = plan_of(method="canet").ranges
    assert ranges.pop("reg_weight")  # λ, which the paper does not search
    assert ranges == {
        "num_layers": [2, 3, 4, 5],
        "hidden": [32, 64, 128],
        "dropout": [0.0, 0.1, 0.2, 0.5],
        "learning_rate": [0.001, 0.005, 0.01, 0.02],
        "weight_decay": [0.0, 5e-5, 5e-4, 5e-3],
        "num_environments": [3, 5, 10],
        "tau": [1.0, 3.0, 5.0, 10.0],
    }


@pytest.mark.parametrize("method", METHODS)
def test_search_can_start_from_every_preset(method: str) -> None:
    searched = [task for task, entry in DATASETS.items() if entry.canet_settings]
    for task, backbone in itertools.product(["synthetic", *searched], ("gcn", "gat")):
        plan = plan_of("grid", task, method, backbone)
        assert all(value in plan.choices[name] for name, value in plan.start.items())


def test_published_value_outside_the_range_is_added_to_the_search() -> None:
    plan = plan_of("grid", "pubmed", "canet")
    assert plan.start["tau"] == 2.0
    assert plan.choices["tau"] == [1.0, 2.0, 3.0, 5.0, 10.0]
    assert plan.max_trials == 36864 + 1


def test_plans_share_a_name_only_if_they_are_equal() -> None:
    plans = [plan_of(), plan_of("grid"), plan_of(backbone="gat"), Plan(plan_of().base, "tpe", 2)]
    assert len({plan.name for plan in [*plans, plan_of()]}) == len(plans)
    assert plan_of().name.startswith("synthetic-erm-gcn-")


# Trials


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_search_can_be_resumed(sampler: SamplerName, search: Search) -> None:
    landscape, plan = Landscape(smooth), plan_of(sampler)
    for trials in (3, 12, 12, 16):
        study = search(plan, trials, landscape)
        assert len(landscape.tried) == len(done_trials(study)) == trials
    assert landscape.tried[0] == plan.start
    assert len({str(tried) for tried in landscape.tried}) >= 14  # few are tried twice


def test_a_grid_tries_the_initial_settings_and_then_all(few_settings: None, search: Search) -> None:
    landscape = Landscape(lambda settings: -settings["hidden"] - settings["dropout"])
    plan = plan_of("grid")
    search(plan, 50, landscape)
    first, *rest = landscape.tried
    assert first == plan.start
    grid = [
        dict(zip(plan.ranges, v, strict=True)) for v in itertools.product(*plan.ranges.values())
    ]
    assert sorted(rest, key=str) == sorted(grid, key=str)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_stopped_trials_do_not_count_and_finished_trials_are_kept(
    sampler: SamplerName, search: Search
) -> None:
    landscape, plan = Landscape(lambda settings: -settings["dropout"]), plan_of(sampler)
    calls = 0

    def interrupted(settings: Settings, on_progress: Callable[..., None]) -> float:
        nonlocal calls
        calls += 1
        if calls % 3 == 1:
            raise KeyboardInterrupt
        return landscape(settings, on_progress)

    study = None
    while study is None:
        try:
            study = search(plan, 12, interrupted)
        except KeyboardInterrupt:
            continue
    assert calls == 12 + 6
    assert landscape.tried[0] == plan.start
    assert len(landscape.tried) == len(done_trials(study)) == 12


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_bad_trials_are_pruned_but_never_the_initial_settings(
    sampler: SamplerName, search: Search
) -> None:
    landscape = Landscape(smooth)
    study = search(plan_of(sampler), 20, landscape)
    pruned = [trial for trial in done_trials(study) if trial.state == TrialState.PRUNED]
    assert pruned
    assert all(trial.number >= 5 for trial in pruned)
    assert {*landscape.epochs} == {20, 60}
    assert landscape.epochs.count(20) == len(pruned)


def test_initial_settings_with_the_worst_score_are_not_pruned(search: Search) -> None:
    plan, landscape = plan_of(), Landscape(lambda s: -1e9 if s == plan_of().start else smooth(s))
    study = search(plan, 8, landscape)
    assert (landscape.tried[0], landscape.epochs[0]) == (plan.start, 60)
    assert ranked_trials(study)[-1].params == plan.start


def test_grid_prunes_nothing(search: Search) -> None:
    landscape = Landscape(smooth)
    search(plan_of("grid"), 20, landscape)
    assert {*landscape.epochs} == {60}


def test_settings_that_cannot_be_trained_are_failed_trials_with_a_reason(
    few_settings: None, search: Search
) -> None:
    def score(settings: Settings) -> float:
        if settings["hidden"] == 128:
            raise CanetError("the loss is not finite")
        return 1.0

    landscape = Landscape(score)
    study = search(plan_of("grid"), 13, landscape)
    failed = [t for t in done_trials(study) if t.state == TrialState.FAIL]
    assert len(landscape.tried) == 13
    assert [trial.user_attrs["error"] for trial in failed] == 4 * ["the loss is not finite"]


def test_of_equal_scores_the_first_is_the_best(search: Search) -> None:
    study = search(plan_of(), 6, Landscape(lambda settings: 7.0))
    assert ranked_trials(study)[0].params == plan_of().start
    assert importances(study) == {}


def test_the_setting_that_changes_the_score_most_is_the_most_important(search: Search) -> None:
    landscape = Landscape(lambda s: s["dropout"] + 0.01 * s["num_layers"])
    shares = importances(search(plan_of("grid"), 30, landscape))
    assert next(iter(shares)) == "dropout"
    assert {*shares} == {*plan_of().ranges}
    assert sum(shares.values()) == pytest.approx(1)


# Storage


def test_incomplete_last_line_of_a_journal_loses_no_finished_trial(
    tmp_path: Path, search: Search
) -> None:
    journal, landscape = tmp_path / "journal.log", Landscape(smooth)
    search(plan_of(), 3, landscape)
    journal.write_bytes(journal.read_bytes() + b'{"op_code":6,"tri')
    assert len(done_trials(search(plan_of(), 5, landscape))) == len(landscape.tried) == 5


def test_the_lock_of_a_killed_search_is_a_valid_link_so_that_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    journal: Any = open_journal(Path("mine/journal.log"))
    journal._backend._lock.acquire()
    assert (tmp_path / "mine" / "journal.log.lock").exists()


@pytest.mark.parametrize("notes", ["my notes\nof today\n", "my notes\n", "{}\n", "null\n"])
def test_file_that_is_not_a_journal_is_rejected_and_not_changed(notes: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(notes)
    with pytest.raises(CanetError, match=r"notes\.txt"):
        open_study(plan_of(), open_journal(path))
    assert path.read_text() == notes

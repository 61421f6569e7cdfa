from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from canet.data import DATASETS
from canet.errors import CanetError
from canet.methods import BACKBONES, METHODS
from canet.presets import preset
from canet.search import journal as journal_module
from canet.search import study as study_module
from canet.search.journal import Journal
from canet.search.samplers import SamplerName, places
from canet.search.storage import open_storage
from canet.search.study import (
    Plan,
    begin_anew,
    check_trials,
    done_trials,
    enqueue_start,
    importances,
    open_study,
    optimize,
    ranked_trials,
)
from canet.settings import recorded
from canet.store import RunConfig
from canet.util.files import WriteError

SAMPLERS: tuple[SamplerName, ...] = ("tpe", "random", "grid")
Settings = Mapping[str, Any]


def plan_of(
    sampler: SamplerName = "tpe",
    task: str = "synthetic",
    method: str = "erm",
    backbone: str = "gcn",
) -> Plan:
    base = RunConfig(
        task=task,
        protocol="paper",
        data_seed=0,
        features="original",
        inductive=False,
        method=method,
        backbone=backbone,
        settings=recorded(preset(task, method, backbone)) | {"epochs": 60},
        seed=0,
    )
    return Plan(base, sampler, seeds=1)


class Landscape:
    """Stands for an objective: a score for each setting, told at every epoch, without training."""

    def __init__(self, score: Callable[[Settings], float]) -> None:
        self.score = score
        self.tried: list[dict[str, Any]] = []
        self.epochs: list[int] = []

    def __call__(self, changes: Settings, on_progress: Callable[..., None]) -> float:
        self.tried.append(dict(changes))
        self.epochs.append(0)
        for epoch in range(1, 61):
            self.epochs[-1] = epoch
            on_progress(epoch, 60, self.score(changes))
        return self.score(changes)


def smooth(settings: Settings) -> float:
    """Best in the middle of the ranges, and different for nearly all settings."""
    return -abs(settings["hidden"] - 64) / 64 - settings["dropout"] + settings["learning_rate"]


def smooth_width(settings: Settings) -> float:
    return -settings["hidden"] - settings["dropout"]


def search(plan: Plan, folder: Path, trials: int, objective: Any) -> optuna.Study:
    """As the only process there is does it."""
    study = open_study(plan, open_storage(str(folder / "journal.log")))
    begin_anew(study)
    enqueue_start(study, plan)
    optimize(study, plan, trials, objective)
    return study


@pytest.fixture(autouse=True)
def unhurried_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals are not forced onto the disk, which takes most of the time of a trial here."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def few_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the width and dropout are searched: twelve settings."""
    describe = study_module.describe_settings

    def described(settings_type: type) -> dict[str, dict[str, Any]]:
        about = describe(settings_type)
        return {name: about[name] for name in ("hidden", "dropout")}

    monkeypatch.setattr(study_module, "describe_settings", described)


# What is searched


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
    for task, backbone in itertools.product(DATASETS, BACKBONES):
        plan = plan_of("grid", task, method, backbone)
        assert all(value in plan.choices[name] for name, value in plan.start.items())


def test_published_setting_out_of_range_is_one_more_to_try() -> None:
    plan = plan_of("grid", "pubmed", "canet")
    assert plan.start["tau"] == 2.0
    assert plan.choices["tau"] == [1.0, 2.0, 3.0, 5.0, 10.0]
    inside = plan_of("grid", "cora", "canet")
    assert (len(plan.points), len(inside.points)) == (36864 + 1, 36864)
    assert plan.points[-1] == plan.start


def test_plans_share_a_name_only_if_they_are_equal() -> None:
    plans = [plan_of(), plan_of("grid"), plan_of(backbone="gat"), Plan(plan_of().base, "tpe", 2)]
    assert len({plan.name for plan in [*plans, plan_of()]}) == len(plans)
    assert plan_of().name.startswith("synthetic-erm-gcn-")


# Trials


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_first_trial_is_where_the_search_starts(sampler: SamplerName, tmp_path: Path) -> None:
    landscape = Landscape(smooth)
    plan = plan_of(sampler, "pubmed", "canet")
    search(plan, tmp_path, 2, landscape)
    assert landscape.tried[0] == plan.start
    assert landscape.tried[1] != plan.start


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_search_that_was_stopped_goes_on_as_if_it_had_not(
    sampler: SamplerName, tmp_path: Path
) -> None:
    whole, parts = Landscape(smooth), Landscape(smooth)
    search(plan_of(sampler), tmp_path / "whole", 16, whole)
    for trials in (3, 12, 16):
        search(plan_of(sampler), tmp_path / "parts", trials, parts)
    assert parts.tried == whole.tried
    assert len(whole.tried) == 16


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_settings_are_tried_twice_and_a_small_space_is_exhausted(
    sampler: SamplerName, few_settings: None, tmp_path: Path
) -> None:
    landscape = Landscape(smooth_width)
    plan = plan_of(sampler)
    study = search(plan, tmp_path, 12, landscape)
    assert sorted(landscape.tried, key=str) == sorted(plan.points, key=str)
    optimize(study, plan, 13, landscape)
    assert len(landscape.tried) == len(done_trials(study)) == 12


def test_random_search_draws_from_the_whole_range(tmp_path: Path) -> None:
    landscape = Landscape(smooth)
    search(plan_of("random"), tmp_path, 60, landscape)
    for name, values in plan_of().ranges.items():
        drawn = Counter(tried[name] for tried in landscape.tried)
        assert all(drawn[value] >= 5 for value in values)


def test_tpe_learns_where_scores_are_high(tmp_path: Path) -> None:
    landscape = Landscape(smooth)
    search(plan_of("tpe"), tmp_path, 40, landscape)
    late = [smooth(tried) for tried in landscape.tried[20:]]
    early = [smooth(tried) for tried in landscape.tried[1:11]]
    assert sum(late) / len(late) > sum(early) / len(early)


def told(study: optuna.Study) -> list[Any]:
    """All that was found, with the places of the trials."""
    place = places(study.get_trials())
    return [
        (place[t.number], t.params, t.state, t.value, t.intermediate_values)
        for t in done_trials(study)
    ]


class Cut(BaseException):
    """Stands for the end of a process."""


def cut_writes(monkeypatch: pytest.MonkeyPatch, torn: bool = False) -> None:
    """Let the process end at one of the next writes of a journal, again and again."""
    choice, append = random.Random(1), Journal.append_logs
    left = 20

    def append_or_end(journal: Journal, logs: list[dict[str, Any]]) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            append(journal, logs)
            return
        left = choice.randint(0, 40)
        if torn:
            with journal.path.open("ab") as file:
                file.write(b'{"op_code":5,"tri')
        raise Cut

    monkeypatch.setattr(Journal, "append_logs", append_or_end)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_search_that_was_cut_short_many_times_ends_as_if_it_had_not(
    sampler: SamplerName, torn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = told(search(plan_of(sampler), tmp_path / "whole", 16, Landscape(smooth)))
    cuts, study = 0, None
    cut_writes(monkeypatch, torn)
    while study is None:
        try:
            study = search(plan_of(sampler), tmp_path / "cut", 16, Landscape(smooth))
        except Cut:
            cuts += 1
    assert told(study) == whole
    assert cuts > 5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_small_space_is_exhausted_in_the_same_order_whenever_the_search_is_cut_short(
    sampler: SamplerName, few_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = told(search(plan_of(sampler), tmp_path / "whole", 12, Landscape(smooth_width)))
    study = None
    cut_writes(monkeypatch)
    while study is None:
        with contextlib.suppress(Cut):
            study = search(plan_of(sampler), tmp_path / "cut", 12, Landscape(smooth_width))
    assert told(study) == whole


def test_trial_whose_process_died_does_not_count_and_is_done_again_in_its_place(
    tmp_path: Path,
) -> None:
    def die(*_: object) -> float:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            search(plan_of(), tmp_path, 3, die)
    landscape = Landscape(smooth)
    study = search(plan_of(), tmp_path, 3, landscape)
    assert landscape.tried[0] == plan_of().start
    trials = study.get_trials()
    assert [trial.state for trial in trials] == 2 * [TrialState.FAIL] + 3 * [TrialState.COMPLETE]
    assert places(trials) == {0: 0, 1: 0, 2: 0, 3: 1, 4: 2}


def test_trial_that_others_have_passed_is_done_again_in_its_place(tmp_path: Path) -> None:
    whole, parts = Landscape(smooth), Landscape(smooth)
    search(plan_of("random"), tmp_path / "whole", 6, whole)
    search(plan_of("random"), tmp_path / "parts", 2, parts)
    study = open_study(plan_of("random"), open_storage(str(tmp_path / "parts" / "journal.log")))
    study.ask()
    optimize(study, plan_of("random"), 5, parts)
    search(plan_of("random"), tmp_path / "parts", 6, parts)
    assert [*parts.tried[:2], parts.tried[4], *parts.tried[2:4], parts.tried[5]] == whole.tried


def test_combination_of_a_grid_whose_trial_was_interrupted_is_tried_after_all(
    few_settings: None, tmp_path: Path
) -> None:
    landscape = Landscape(smooth_width)

    def interrupted(settings: Settings, on_progress: Callable[..., None]) -> float:
        if len(landscape.tried) == 5:
            raise KeyboardInterrupt
        return landscape(settings, on_progress)

    plan = plan_of("grid")
    with pytest.raises(KeyboardInterrupt):
        search(plan, tmp_path, 12, interrupted)
    search(plan, tmp_path, 12, landscape)
    assert sorted(landscape.tried, key=str) == sorted(plan.points, key=str)


def test_workers_begin_no_more_trials_than_are_wanted(tmp_path: Path) -> None:
    plan, landscape = plan_of("random"), Landscape(smooth)
    search(plan, tmp_path, 3, landscape)
    study = open_study(plan, open_storage(str(tmp_path / "journal.log")))
    died, running = study.ask(), study.ask()
    optimize(study, plan, 6, landscape, dead=frozenset([died.number]))
    assert len(landscape.tried) == 5
    optimize(study, plan, 6, landscape, dead=frozenset([died.number]))
    assert len(landscape.tried) == 5
    study.tell(running, 1.0)
    assert len(done_trials(study)) == 6


def test_worker_that_came_too_late_leaves_its_trial_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, landscape, others = plan_of("random"), Landscape(smooth), Landscape(smooth)
    study = open_study(plan, open_storage(str(tmp_path / "journal.log")))
    ask = study.ask

    def ask_last() -> optuna.Trial:
        while len(done_trials(study)) < 3:
            number = len(others.tried)
            trial = ask({name: CategoricalDistribution(c) for name, c in plan.choices.items()})
            study.tell(trial, others(trial.params, lambda *_: None))
            assert len(others.tried) == number + 1
        return ask()

    monkeypatch.setattr(study, "ask", ask_last)
    optimize(study, plan, 3, landscape)
    assert (landscape.tried, len(done_trials(study))) == ([], 3)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_bad_trials_are_pruned_early_but_never_the_start(
    sampler: SamplerName, tmp_path: Path
) -> None:
    start = plan_of().start
    landscape = Landscape(lambda settings: 1.0 if settings == start else smooth(settings))
    study = search(plan_of(sampler), tmp_path, 20, landscape)
    pruned = [trial for trial in done_trials(study) if trial.state == TrialState.PRUNED]
    assert pruned
    assert all(trial.number > 5 for trial in pruned)
    assert {*landscape.epochs} == {20, 60}
    assert landscape.epochs.count(20) == len(pruned)


def test_start_that_scores_worst_is_not_pruned(tmp_path: Path) -> None:
    plan, landscape = plan_of(), Landscape(lambda s: -1e9 if s == plan_of().start else smooth(s))
    study = open_study(plan, open_storage(str(tmp_path / "journal.log")))
    optimize(study, plan, 8, landscape)
    enqueue_start(study, plan)
    optimize(study, plan, 9, landscape)
    assert (landscape.tried[-1], landscape.epochs[-1]) == (plan.start, 60)
    assert ranked_trials(study)[-1].params == plan.start


def test_grid_prunes_nothing(tmp_path: Path) -> None:
    landscape = Landscape(smooth)
    search(plan_of("grid"), tmp_path, 20, landscape)
    assert {*landscape.epochs} == {60}


def test_settings_that_cannot_be_trained_count_as_failed_and_are_not_tried_again(
    few_settings: None, tmp_path: Path
) -> None:
    tried = []

    def objective(settings: Settings, on_progress: object) -> float:
        tried.append(settings)
        if settings["hidden"] == 128:
            raise CanetError("the loss is not finite")
        return 1.0

    study = search(plan_of("random"), tmp_path, 12, objective)
    failed = [t for t in done_trials(study) if t.state == TrialState.FAIL]
    assert len(tried) == 12
    assert [trial.user_attrs["error"] for trial in failed] == 4 * ["the loss is not finite"]


def test_of_equal_scores_the_first_is_best(tmp_path: Path) -> None:
    study = search(plan_of(), tmp_path, 6, Landscape(lambda settings: 7.0))
    assert ranked_trials(study)[0].params == plan_of().start
    assert importances(study) == {}


def test_importance_goes_to_what_moves_the_score(tmp_path: Path) -> None:
    landscape = Landscape(lambda s: s["dropout"] + 0.01 * s["num_layers"])
    shares = importances(search(plan_of("grid"), tmp_path, 30, landscape))
    assert next(iter(shares)) == "dropout"
    assert {*shares} == {*plan_of().ranges}
    assert sum(shares.values()) == pytest.approx(1)


# Storage


def test_torn_line_of_a_journal_is_dropped(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    search(plan_of(), tmp_path, 3, Landscape(smooth))
    journal.write_bytes(journal.read_bytes() + b'{"op_code":')
    landscape = Landscape(smooth)
    study = search(plan_of(), tmp_path, 5, landscape)
    assert (len(landscape.tried), len(done_trials(study))) == (2, 5)
    assert len(done_trials(open_study(plan_of(), open_storage(str(journal))))) == 5


def test_lock_of_a_process_that_died_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "LOCK_SECONDS", 3)
    monkeypatch.chdir(tmp_path)
    Path("journal.log.lock").touch()
    study = search(plan_of(), Path(), 2, Landscape(smooth))
    assert len(done_trials(study)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["journal.log"]


@pytest.mark.parametrize("notes", ["my notes\nof today\n", "my notes", "{}\n", "null\n"])
def test_file_that_is_no_journal_is_refused_and_kept(notes: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(notes)
    with pytest.raises(CanetError, match="is not a journal of a search"):
        open_storage(str(path))
    assert path.read_text() == notes


WRONG = {
    "text": "garbage",
    "text without an end": ("gar", ""),
    "no object": "null",
    "list": "[]",
    "nothing": "{}",
    "unknown": '{"op_code":99}',
    "unhashable": '{"op_code":[]}',
    "no study": '{"op_code":4}',
    "no state": '{"op_code":4,"worker_id":"","study_id":0,"datetime_start":null,"state":9}',
    "no date": '{"op_code":4,"worker_id":"","study_id":0,"datetime_start":5}',
    "no settings": '{"op_code":4,"study_id":0,"datetime_start":null,"distributions":7}',
    "deep": "[" * 100_000,
    "no text": "\udcff\udcfe",
    "huge": '{"op_code":' + "9" * 5000 + "}",
}


@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG)
def test_damaged_journal_is_refused_with_its_line_and_goes_on_without_it(
    line: str | tuple[str, str], tmp_path: Path
) -> None:
    journal = tmp_path / "journal.log"
    search(plan_of("random"), tmp_path, 2, Landscape(smooth))
    before = journal.read_bytes()
    text, end = (line, "\n") if isinstance(line, str) else line
    after = before + f"{text}{end}".encode(errors="surrogateescape")
    journal.write_bytes(after)
    with pytest.raises(CanetError) as caught:
        open_storage(str(journal))
    number = before.count(b"\n") + 1
    assert f"'{journal}' is damaged in line {number}: delete that line and all" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert journal.read_bytes() == after
    journal.write_bytes(before)
    assert len(done_trials(search(plan_of("random"), tmp_path, 3, Landscape(smooth)))) == 3


def test_line_that_is_damaged_in_the_middle_of_a_search_is_told(tmp_path: Path) -> None:
    study = search(plan_of(), tmp_path, 2, Landscape(smooth))
    with (tmp_path / "journal.log").open("a") as file:
        file.write("garbage\n")
    with pytest.raises(CanetError, match="is damaged in line"):
        optimize(study, plan_of(), 4, Landscape(smooth))


EDITED = {
    "score": {"op_code": 6, "trial_id": 1, "state": 1, "values": ["high"]},
    "absurd score": {"op_code": 6, "trial_id": 1, "state": 1, "values": [1e308]},
    "no score": {"op_code": 6, "trial_id": 1, "state": 1, "values": None},
    "report": {"op_code": 7, "trial_id": 1, "step": 20, "intermediate_value": "high"},
    "place": {"op_code": 8, "trial_id": 1, "user_attr": {"place": "first"}},
    "no settings": {"op_code": 6, "trial_id": 1, "state": 1, "values": [1.0]},
}


@pytest.mark.parametrize("entry", EDITED.values(), ids=EDITED)
def test_trial_that_no_search_makes_is_refused(entry: dict[str, Any], tmp_path: Path) -> None:
    study = search(plan_of(), tmp_path, 1, Landscape(lambda settings: 50.0))
    check_trials(study, plan_of())
    study.ask()
    check_trials(study, plan_of())
    date = "2026-01-01T00:00:00+00:00"
    with (tmp_path / "journal.log").open("a") as file:
        file.write(json.dumps({"worker_id": "", "datetime_complete": date} | entry) + "\n")
    again = open_study(plan_of(), open_storage(str(tmp_path / "journal.log")))
    with pytest.raises(CanetError, match="is not one of this search: its journal"):
        check_trials(again, plan_of())


def test_full_disk_is_told_and_the_search_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = told(search(plan_of(), tmp_path / "whole", 8, Landscape(smooth)))
    append, most = JournalFileBackend.append_logs, 3000

    def append_within(backend: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        append(backend, logs)
        assert isinstance(backend, Journal)
        if backend.path.stat().st_size > most:
            os.truncate(backend.path, most)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JournalFileBackend, "append_logs", append_within)
    study, complaints = None, set[str]()
    while study is None:
        try:
            study = search(plan_of(), tmp_path / "full", 8, Landscape(smooth))
        except WriteError as error:
            complaints.add(str(error).partition(" (No space")[0])
            most += 2500
    assert told(study) == whole
    assert complaints == {f"cannot write '{tmp_path}/full/journal.log'"}


def test_full_disk_is_no_fault_of_the_settings(tmp_path: Path) -> None:
    def full(*_: object) -> float:
        raise WriteError(errno.ENOSPC, "No space left on device", "journal.log")

    with pytest.raises(WriteError):
        search(plan_of(), tmp_path, 2, full)
    study = search(plan_of(), tmp_path, 2, Landscape(smooth))
    assert [trial.state for trial in done_trials(study)] == 2 * [TrialState.COMPLETE]


def test_database_keeps_a_search_between_processes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    landscape = Landscape(smooth)
    optimize(open_study(plan_of(), open_storage(url)), plan_of(), 1, landscape)
    again = open_study(plan_of(), open_storage(url))
    assert [trial.params for trial in done_trials(again)] == landscape.tried


@pytest.mark.parametrize("url", ["nodatabase://here", "sqlite:////nowhere/at/all.db"])
def test_database_that_cannot_be_opened_is_told_in_one_line(url: str) -> None:
    with pytest.raises(CanetError, match="cannot open the storage") as caught:
        open_storage(url)
    assert "\n" not in str(caught.value)


ELSEWHERE = """
import os, sys
from canet.search.storage import open_storage
from canet.search.study import open_study, optimize
from tests.search.test_study import Landscape, plan_of, smooth

os.fsync = lambda file: None
print("ready", flush=True)
sys.stdin.readline()
study = open_study(plan_of("random"), open_storage(f"{sys.argv[1]}/journal.log"))
optimize(study, plan_of("random"), 12, Landscape(smooth))
"""


@pytest.mark.slow
def test_two_processes_share_a_journal_and_try_nothing_twice(tmp_path: Path) -> None:
    both = [
        Popen([sys.executable, "-c", ELSEWHERE, tmp_path], stdin=PIPE, stdout=PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in both:
        process.communicate(timeout=120)
        assert process.returncode == 0
    study = open_study(plan_of("random"), open_storage(str(tmp_path / "journal.log")))
    done = done_trials(study)
    assert len(done) == 12
    assert len({str(sorted(trial.params.items())) for trial in done}) == 12

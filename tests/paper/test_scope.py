from pathlib import Path

import pytest

from canet.data import DATASETS, WITHOUT_SPURIOUS, load_task
from canet.paper.scope import Repeat, Scope, TaskSpec
from canet.runs.evaluate import load_task_of, open_learner

SYNTHETIC = TaskSpec("synthetic", "original", "synthetic")


@pytest.mark.parametrize("features", [None, WITHOUT_SPURIOUS])
def test_a_job_is_the_config_of_the_run_it_becomes(features: str | None) -> None:
    config = Scope().job(
        SYNTHETIC, "canet", "gat", Repeat(3, 4), "disjoint", features, True, {"tau": 2}
    )
    task = load_task_of(config, None)
    assert open_learner(config, "cpu").config(task, seed=4, ood_curves=True) == config
    assert (config.settings["tau"], config.settings["epochs"]) == (2.0, 500)


def test_scores_are_averaged_over_draws_of_the_data_or_on_large_tasks_over_runs() -> None:
    assert Scope().repeats(SYNTHETIC) == [Repeat(draw, 0) for draw in range(5)]
    assert Scope().repeats_on_first_draw(SYNTHETIC) == [Repeat(0, seed) for seed in range(5)]
    for task in ("arxiv", "elliptic"):
        large = TaskSpec(task, "original", task)
        assert Scope().repeats(large) == [Repeat(0, seed) for seed in range(5)]


def test_a_method_has_the_settings_of_a_search_on_the_features_of_its_runs() -> None:
    for features, is_searched in (("original", False), ("structural", True)):
        spec = TaskSpec("arxiv", features, "arxiv")
        config = Scope().job(spec, "coral", "gcn", Repeat(0, 0))
        assert (config.settings["hidden"] == 128) == is_searched
        assert (spec.settings_note is None) == is_searched


def test_missing_tasks_are_downloaded_by_a_full_run_and_replaced_in_a_quick_one(
    fresh_cache: Path,
) -> None:
    tasks = ("cora", "arxiv")
    assert [s.features for s in Scope().specs(tasks, tasks)] == ["original", "original"]
    (replacement,) = Scope(quick=True).specs(tasks, tasks)
    assert replacement == TaskSpec("synthetic", "original", "synthetic in place of cora")


def test_a_graph_without_its_features_file_runs_with_structural_ones(small_root: Path) -> None:
    whole = Scope(data_root=small_root)
    assert whole.specs(["arxiv"], [])[0] == TaskSpec("arxiv", "original", "arxiv")
    (small_root / "arxiv/raw/node-feat.csv.gz").unlink()
    (spec,) = whole.specs(["arxiv"], [])
    assert spec == TaskSpec("arxiv", "structural", "arxiv (structural features)")


def test_without_files_finished_runs_decide_the_features(fresh_cache: Path) -> None:
    available = frozenset({("arxiv", "structural"), ("cora", "original")})
    (spec,) = Scope(available_features=available).specs(["arxiv"], [])
    assert spec.features == "structural"


@pytest.mark.parametrize("task", ["synthetic", "twitch", "arxiv", "elliptic"])
def test_the_names_of_ood_sets_are_those_of_the_task(task: str, small_root: Path) -> None:
    splits = load_task(task, small_root).splits()
    assert DATASETS[task].ood_sets == tuple(name for name in splits if name.startswith("ood/"))

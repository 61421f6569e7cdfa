import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canet.data import CENTRED_PER_GRAPH, WITHOUT_SPURIOUS
from canet.paper.paper_report import CONTEXT
from canet.report.comparison import Comparison, Contender, Lead, compare, find_results
from canet.store import RunConfig
from canet.store.summary import OOD_MEAN
from tests.support.finished import make_config, write_run
from tests.support.searches import SearchCaNet


def write(
    root: Path, ood: float, method: str = "erm", fields: dict[str, Any] | None = None, **more: Any
) -> RunConfig:
    """A run whose two OOD sets have the mean `ood`; `fields` are those of the config."""
    config = replace(make_config(method=method, **more), **(fields or {}))
    write_run(root, config, {"ood/near": ood + 0.05, "ood/far": ood - 0.05, "test_id": 0.9})
    return config


def only(root: Path) -> Comparison:
    (comparison,) = compare(find_results(root)[0], CONTEXT)
    return comparison


def contender(root: Path) -> Contender:
    (found,) = only(root).contenders
    return found


def test_one_draw_has_its_spread_over_runs(tmp_path: Path) -> None:
    for seed, ood in enumerate((0.5, 0.6, 0.7)):
        write(tmp_path, ood, seed=seed)
    found = contender(tmp_path)
    assert found.spread_over == "3 runs"
    assert found.score(OOD_MEAN).values == pytest.approx([0.5, 0.6, 0.7])


def test_several_draws_have_their_spread_over_draws_with_common_seeds(tmp_path: Path) -> None:
    write(tmp_path, 0.5, seed=0, data_seed=0)
    write(tmp_path, 0.9, seed=1, data_seed=0)
    write(tmp_path, 0.6, seed=0, data_seed=1)
    found = contender(tmp_path)
    assert found.spread_over == "2 draws"
    assert sorted(found.score(OOD_MEAN).values) == pytest.approx([0.5, 0.6])
    assert found.score_over_runs(OOD_MEAN).values == pytest.approx([0.5, 0.9])
    assert len(found.runs) == 3


def test_one_run_with_and_without_curves_counts_once(tmp_path: Path) -> None:
    write(tmp_path, 0.5, ood_curves=True)
    write(tmp_path, 0.5, ood_curves=False)
    (run,) = contender(tmp_path).runs
    assert run.config.ood_curves


def test_a_score_that_is_not_finite_is_not_ranked(tmp_path: Path) -> None:
    write(tmp_path, math.nan, "canet")
    write(tmp_path, 0.5, "irm", seed=0)
    write(tmp_path, math.nan, "irm", seed=1)
    write(tmp_path, 0.6)
    comparison = only(tmp_path)
    assert comparison.ranking("gcn") is None
    first, *others = comparison.of("gcn")
    assert first.config.method == "erm"
    assert all(math.isnan(other.score(OOD_MEAN).mean) for other in others)


def test_the_settings_nearest_to_the_defaults_compete_and_the_others_are_variants(
    tmp_path: Path,
) -> None:
    write(tmp_path, 0.9, "canet", num_environments=5)
    write(tmp_path, 0.5, "canet", epochs=20)
    write(tmp_path, 0.7, "canet", tau=3.0, hidden=8)
    comparison = only(tmp_path)
    (chosen,) = comparison.contenders
    assert chosen.config.settings["epochs"] == 20
    assert len(comparison.variants) == 2


def test_searched_settings_are_shown_but_not_ranked(
    search_canet: SearchCaNet, tmp_path: Path
) -> None:
    search_canet("cora", hidden=128)
    write(tmp_path, 0.8, "canet", task="cora")
    write(tmp_path, 0.9, "canet", task="cora", hidden=128)
    write(tmp_path, 0.7, "canet", task="cora", hidden=32)
    write(tmp_path, 0.6, task="cora")
    comparison = only(tmp_path)
    assert [c.is_searched for c in comparison.of("gcn")] == [True, False, False]
    assert [c.config.settings["hidden"] for c in comparison.variants] == [32]
    ranking = comparison.ranking("gcn")
    assert ranking
    assert ranking.best[0].score(OOD_MEAN).mean == pytest.approx(0.8)
    assert ranking.points == pytest.approx(20.0)


def test_controls_are_shown_but_not_ranked(tmp_path: Path) -> None:
    write(tmp_path, 0.93, fields={"features": WITHOUT_SPURIOUS})
    write(tmp_path, 0.95, fields={"features": CENTRED_PER_GRAPH})
    write(tmp_path, 0.6)
    write(tmp_path, 0.8, "canet")
    comparison = only(tmp_path)
    ranking = comparison.ranking("gcn")
    assert ranking
    assert [best.config.method for best in ranking.best] == ["canet"]
    assert ranking.points == pytest.approx(20.0)
    assert [c.label for c in comparison.of("gcn")] == [
        *("CaNet", "ERM", "ERM, centred per graph", "ERM, without the spurious columns")
    ]
    assert [bool(c.control) for c in comparison.of("gcn")] == [False, False, True, True]


def test_protocols_features_visibility_and_generators_are_never_compared(tmp_path: Path) -> None:
    write(tmp_path, 0.6)
    write(tmp_path, 0.6, fields={"protocol": "disjoint"})
    write(tmp_path, 0.6, fields={"features": "structural"})
    write(tmp_path, 0.6, fields={"inductive": True})
    write(tmp_path, 0.6, fields={"generator": "redrawn"})
    assert len(compare(find_results(tmp_path)[0])) == 5


@pytest.mark.parametrize(
    ("second", "lead"),
    [((0.62, 0.64), Lead.CLEAR), ((0.76, 0.8), Lead.WITHIN), ((0.81002, 0.80002), Lead.TIED)],
)
def test_a_lead_is_clear_if_it_exceeds_both_spreads(
    second: tuple[float, float], lead: Lead, tmp_path: Path
) -> None:
    for seed in (0, 1):
        write(tmp_path, 0.8 + seed / 100, "canet", seed=seed)
        write(tmp_path, second[seed], seed=seed)
    ranking = only(tmp_path).ranking("gcn")
    assert ranking
    assert ranking.lead is lead


def test_without_defaults_the_settings_with_most_runs_compete(tmp_path: Path) -> None:
    write(tmp_path, 0.7, "canet", hidden=128)
    for seed in (0, 1):
        write(tmp_path, 0.5, "canet", seed=seed, hidden=8)
    (comparison,) = compare(find_results(tmp_path)[0])
    (chosen,) = comparison.contenders
    assert (chosen.config.settings["hidden"], chosen.is_searched) == (8, False)
    assert len(comparison.variants) == 1


def test_draws_without_a_common_run_seed_count_with_all_their_runs(tmp_path: Path) -> None:
    write(tmp_path, 0.5, seed=0, data_seed=0)
    write(tmp_path, 0.6, seed=1, data_seed=1)
    assert contender(tmp_path).score(OOD_MEAN).mean == pytest.approx(0.55)


def test_a_method_that_this_version_does_not_know_is_shown(tmp_path: Path) -> None:
    write(tmp_path, 0.6, fields={"method": "mine", "settings": {"alpha": 1}})
    write(tmp_path, 0.7, fields={"method": "mine", "settings": {"alpha": 2}})
    comparison = only(tmp_path)
    assert comparison.contenders[0].config.method == "mine"
    assert len(comparison.variants) == 1

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canet.data import CENTRED, WITHOUT_SPURIOUS
from canet.paper.french_labels import SHIFTED, SHIFTED_FR
from canet.paper.paper_report import CONTEXT
from canet.report.comparison import Comparison, Contender, Lead, compare
from canet.report.results import find_results
from canet.store import RunConfig
from canet.store.summary import OOD_MEAN
from tests.finished import make_config, write_run
from tests.searches import SearchCaNet


def write(
    root: Path, ood: float, method: str = "erm", fields: dict[str, Any] | None = None, **more: Any
) -> RunConfig:
    """A run whose two OOD sets have the mean `ood`; `fields` are those of the config."""
    config = replace(make_config(method=method, **more), **(fields or {}))
    write_run(root, config, {"ood/near": ood + 5, "ood/far": ood - 5, "test_id": 90.0})
    return config


def only(root: Path) -> Comparison:
    (comparison,) = compare(find_results(root, CONTEXT.extra_sets)[0], CONTEXT)
    return comparison


def contender(root: Path) -> Contender:
    (found,) = only(root).contenders
    return found


def test_one_draw_has_its_spread_over_runs(tmp_path: Path) -> None:
    for seed, ood in enumerate((50.0, 60.0, 70.0)):
        write(tmp_path, ood, seed=seed)
    found = contender(tmp_path)
    assert found.basis == "3 runs"
    assert found.score(OOD_MEAN).values == [50.0, 60.0, 70.0]


def test_several_draws_have_their_spread_over_draws_on_the_run_seeds_that_all_have(
    tmp_path: Path,
) -> None:
    write(tmp_path, 50.0, seed=0, data_seed=0)
    write(tmp_path, 90.0, seed=1, data_seed=0)
    write(tmp_path, 60.0, seed=0, data_seed=1)
    found = contender(tmp_path)
    assert found.basis == "2 draws"
    assert sorted(found.score(OOD_MEAN).values) == [50.0, 60.0]
    assert found.score_over_runs(OOD_MEAN).values == [50.0, 90.0]
    assert len(found.runs) == 3


def test_one_run_with_and_without_curves_counts_once(tmp_path: Path) -> None:
    write(tmp_path, 50.0, ood_curves=True)
    write(tmp_path, 50.0, ood_curves=False)
    (run,) = contender(tmp_path).runs
    assert run.config.ood_curves


def test_a_score_that_is_not_a_number_wins_nothing_and_ends_nothing(tmp_path: Path) -> None:
    write(tmp_path, math.nan, "canet")
    write(tmp_path, 50.0, "irm", seed=0)
    write(tmp_path, math.nan, "irm", seed=1)
    write(tmp_path, 60.0)
    comparison = only(tmp_path)
    verdict = comparison.verdict("gcn")
    assert verdict
    assert [c.config.method for c in verdict.ranked] == ["erm"]
    first, *others = comparison.of("gcn")
    assert first.config.method == "erm"
    assert all(math.isnan(other.score(OOD_MEAN).mean) for other in others)


def test_the_settings_nearest_to_the_preset_compete_and_the_others_are_variants(
    tmp_path: Path,
) -> None:
    write(tmp_path, 90.0, "canet", num_environments=5)
    write(tmp_path, 50.0, "canet", epochs=20)
    write(tmp_path, 70.0, "canet", tau=3.0, hidden=8)
    comparison = only(tmp_path)
    (chosen,) = comparison.contenders
    assert chosen.config.settings["epochs"] == 20
    assert len(comparison.variants) == 2


def test_searched_settings_are_listed_but_cannot_win(
    search_canet: SearchCaNet, tmp_path: Path
) -> None:
    search_canet("cora", hidden=128)
    write(tmp_path, 80.0, "canet", task="cora")
    write(tmp_path, 90.0, "canet", task="cora", hidden=128)
    write(tmp_path, 70.0, "canet", task="cora", hidden=32)
    write(tmp_path, 60.0, task="cora")
    comparison = only(tmp_path)
    assert [c.searched for c in comparison.of("gcn")] == [True, False, False]
    assert [c.config.settings["hidden"] for c in comparison.variants] == [32]
    verdict = comparison.verdict("gcn")
    assert verdict
    assert (verdict.best[0].score(OOD_MEAN).mean, verdict.points) == (80.0, 20.0)


def test_controls_are_listed_but_cannot_win(tmp_path: Path) -> None:
    write(tmp_path, 93.0, fields={"features": WITHOUT_SPURIOUS})
    write(tmp_path, 95.0, fields={"features": CENTRED})
    write(tmp_path, 60.0)
    write(tmp_path, 80.0, "canet")
    comparison = only(tmp_path)
    verdict = comparison.verdict("gcn")
    assert verdict
    assert [best.config.method for best in verdict.best] == ["canet"]
    assert verdict.points == 20.0
    assert [c.control for c in comparison.of("gcn")] == ["", "", "centred", "blind"]
    assert [c.label for c in comparison.of("gcn")[2:]] == ["ERM, centred", "ERM, blind"]


def test_protocols_features_visibility_and_generators_are_never_compared(tmp_path: Path) -> None:
    write(tmp_path, 60.0)
    write(tmp_path, 60.0, fields={"protocol": "disjoint"})
    write(tmp_path, 60.0, fields={"features": "structural"})
    write(tmp_path, 60.0, fields={"inductive": True})
    write(tmp_path, 60.0, fields={"generator": "redrawn"})
    assert len(compare(find_results(tmp_path)[0])) == 5


@pytest.mark.parametrize(
    ("second", "lead"),
    [((62.0, 64.0), Lead.CLEAR), ((76.0, 80.0), Lead.WITHIN), ((81.002, 80.002), Lead.TIED)],
)
def test_a_lead_is_clear_if_it_exceeds_both_spreads(
    second: tuple[float, float], lead: Lead, tmp_path: Path
) -> None:
    for seed in (0, 1):
        write(tmp_path, 80.0 + seed, "canet", seed=seed)
        write(tmp_path, second[seed], seed=seed)
    verdict = only(tmp_path).verdict("gcn")
    assert verdict
    assert verdict.lead is lead


def test_nothing_is_searched_and_most_runs_are_chosen_where_no_preset_is_known(
    tmp_path: Path,
) -> None:
    write(tmp_path, 70.0, "canet", hidden=128)
    for seed in (0, 1):
        write(tmp_path, 50.0, "canet", seed=seed, hidden=8)
    (comparison,) = compare(find_results(tmp_path)[0])
    (chosen,) = comparison.contenders
    assert (chosen.config.settings["hidden"], chosen.searched) == (8, False)
    assert len(comparison.variants) == 1


def test_shifted_french_labels_are_a_column_where_runs_have_them(tmp_path: Path) -> None:
    config = make_config("twitch")
    place = write_run(tmp_path, config, {"ood/ES": 60.0, "ood/FR": 62.0, "test_id": 70.0})
    assert only(tmp_path).splits == [OOD_MEAN, "ood/ES", "ood/FR", "test_id"]
    place.add_json(SHIFTED_FR.file, {SHIFTED: 52.0})
    comparison = only(tmp_path)
    assert comparison.splits[2:4] == ["ood/FR", SHIFTED]
    assert comparison.contenders[0].score(SHIFTED).mean == 52.0
    assert comparison.contenders[0].score(OOD_MEAN).mean == 61.0


def test_draws_without_a_common_run_seed_count_with_all_their_runs(tmp_path: Path) -> None:
    write(tmp_path, 50.0, seed=0, data_seed=0)
    write(tmp_path, 60.0, seed=1, data_seed=1)
    assert contender(tmp_path).score(OOD_MEAN).mean == 55.0


def test_a_method_that_this_version_does_not_know_is_shown(tmp_path: Path) -> None:
    write(tmp_path, 60.0, fields={"method": "mine", "settings": {"alpha": 1}})
    write(tmp_path, 70.0, fields={"method": "mine", "settings": {"alpha": 2}})
    comparison = only(tmp_path)
    assert comparison.contenders[0].config.method == "mine"
    assert len(comparison.variants) == 1

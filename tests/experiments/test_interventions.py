"""Interventions on three kinds of shift: jobs and tables of made-up runs."""

from pathlib import Path

from canet.data import CENTRED_PER_GRAPH, GENERATORS, WITHOUT_SPURIOUS
from canet.paper import Scope
from canet.report.score import Score
from canet.store import RunConfig
from experiments.interventions import ABLATIONS, VARIANTS, Interventions
from tests.support.made_up import write_runs


def made_up_score(config: RunConfig) -> float:
    """0.8 and 0.9 for the two controls, 0.79 with interventions, else 0.6."""
    by_features = {WITHOUT_SPURIOUS: 0.8, CENTRED_PER_GRAPH: 0.9}
    usual = 0.6 if config.settings["interventions"] == "none" else 0.79
    return by_features.get(config.features, usual)


def test_every_generator_backbone_and_form_has_five_draws(fresh_cache: Path) -> None:
    configs = Interventions(Scope(tasks=("cora",))).configs()
    alone = {(config.name, config.seed) for config in configs}
    assert len(alone) == 3 * 3 * 9 * 5 + 3 * (len(ABLATIONS) - 1) * 5 + 2 * 2 * 5 * 4
    assert {config.generator for config in configs} == set(GENERATORS)
    assert {config.protocol for config in configs} == {"disjoint"}
    assert not any(config.ood_curves for config in configs)


def test_real_shifts_are_run_with_and_without(fresh_cache: Path) -> None:
    configs = Interventions(Scope(tasks=("twitch",))).configs()
    assert len(configs) == 3 * 4 * 5
    assert {config.protocol for config in configs} == {"paper"}
    assert {config.settings["interventions"] for config in configs} == {"none", "inferred"}


def test_tables_of_a_quick_version(fresh_cache: Path, tmp_path: Path) -> None:
    quick = Interventions(Scope(quick=True))
    finished = write_runs(quick, tmp_path, made_up_score)
    tables = {table.name: table for table in quick.tables(finished)}
    scores = tables["interventions-quick"]
    assert list(scores.columns[3:]) == [contender.label for contender in VARIANTS]
    assert [row[0] for row in scores.rows] == list(GENERATORS)
    last = tables["interventions-last-quick"].rows[0]
    assert all(isinstance(cell, Score) for cell in last[3:])
    assert last[3].text == "59.00 ± 0.00"
    above = tables["interventions-control-quick"]
    row = dict(zip(above.columns, above.rows[0], strict=True))
    assert row["CaNet, inferred"].text == "-1.00 ± 0.00"
    assert row["CaNet, centred per graph"].text == "10.00 ± 0.00"
    columns = tables["interventions-columns-quick"].rows[0]
    assert [cell.mean for cell in columns[2:]] == [2.0, 1.0]


def test_a_study_can_be_restricted_to_one_method(fresh_cache: Path, tmp_path: Path) -> None:
    alone = Interventions(Scope(quick=True, methods=("erm",)))
    assert {config.method for config in alone.configs()} == {"erm"}
    tables = alone.tables(write_runs(alone, tmp_path, made_up_score))
    assert all("CaNet" not in column for table in tables for column in table.columns)

from pathlib import Path

import pytest

from canet.paper.finished_runs import FinishedRuns
from canet.paper.published_tables import Table1, Table2
from canet.paper.scope import Scope
from canet.report.score import Score
from canet.store import RunConfig
from tests.support.made_up import cell, write_made_up, write_runs
from tests.support.searches import SearchCaNet


def by_draw(config: RunConfig) -> float:
    """0.70 on draw 0, 0.71 on draw 1; each seed adds 0.001; CaNet has 0.2 more."""
    lead = 0.2 if config.method == "canet" else 0
    return 0.7 + lead + config.data_seed / 100 + config.seed / 1000


def paper_text(score: Score) -> str | None:
    return score.published and score.published.text


@pytest.fixture
def table1(fresh_cache: Path) -> Table1:
    return Table1(Scope(methods=("erm", "vrex", "canet"), tasks=("cora", "citeseer")))


def test_every_cell_of_table_1_has_five_draws_and_four_more_runs(
    fresh_cache: Path, search_canet: SearchCaNet
) -> None:
    configs = Table1(Scope()).configs()
    assert len(configs) == 3 * 2 * 9 * 9
    cora = [c for c in configs if (c.task, c.method, c.backbone) == ("cora", "erm", "gcn")]
    assert [(c.data_seed, c.seed) for c in cora] == [
        *((draw, 0) for draw in range(5)),
        *((0, seed) for seed in range(1, 5)),
    ]


def test_the_main_table_spreads_over_draws_and_the_other_over_runs(
    table1: Table1, tmp_path: Path
) -> None:
    main, _, runs = table1.tables(write_runs(table1, tmp_path, by_draw))
    for table, step in ((main, 0.01), (runs, 0.001)):
        expected = [0.7 + step * repeat for repeat in range(5)]
        assert cell(table, "GCN", "ERM", "cora OOD").values == pytest.approx(expected)
    assert (main.name, runs.name) == ("table1", "table1-runs")
    assert paper_text(cell(main, "GCN", "CaNet", "cora OOD")) == "96.12 ± 1.04"
    assert cell(main, "GCN", "V-REx", "cora OOD").published is None


def test_unfinished_runs_leave_gaps(table1: Table1, tmp_path: Path) -> None:
    for config in table1.configs()[:3]:
        write_made_up(tmp_path, config, 0.7)
    main, lead, _ = table1.tables(FinishedRuns(tmp_path))
    assert cell(main, "GCN", "ERM", "cora OOD").text == "70.00 ± 0.00 (3 of 5)"
    assert cell(main, "GAT", "CaNet", "cora OOD").text == "–"
    assert lead.rows[0][2:5] == ["–", "–", "–"]


def test_the_lead_is_that_over_the_best_other_method(table1: Table1, tmp_path: Path) -> None:
    lead = table1.tables(write_runs(table1, tmp_path, by_draw))[1]
    assert lead.rows[0] == [
        *("GCN", "cora OOD"),
        *("1 of 3", "ERM, V-REx", "+20.00"),
        *("1 of 2", "ERM", "+21.82"),
    ]


def test_structural_results_are_not_compared_with_published_scores(
    small_root: Path, tmp_path: Path
) -> None:
    (small_root / "arxiv/raw/node-feat.csv.gz").unlink()
    table2 = Table2(Scope(methods=("erm", "canet"), tasks=("arxiv",), data_root=small_root))
    main, lead = table2.tables(write_runs(table2, tmp_path))
    assert "paper" not in main.texts()[0]
    assert all("(structural features)" in head for head in main.columns[2:])
    assert {cell for row in lead.rows for cell in row[5:]} == {"–"}


def test_a_tie_for_a_rank_is_shown_and_all_the_best_others_are_named(
    table1: Table1, tmp_path: Path
) -> None:
    lead = table1.tables(write_runs(table1, tmp_path, lambda config: 0.7))[1]
    assert lead.rows[0][2:5] == ["1 of 3, tied", "ERM, V-REx", "+0.00"]

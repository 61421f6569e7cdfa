"""CaNet with searched settings in the experiments that compare methods."""

from dataclasses import asdict
from pathlib import Path

import pytest

from canet.defaults import task_settings
from canet.paper.elliptic import Elliptic
from canet.paper.published_tables import Table1, Table2
from canet.paper.scope import Scope
from canet.report.labels import SEARCHED_LABEL, SEARCHED_NOTE
from canet.report.tables import Table
from canet.store import RunConfig
from tests.support.made_up import cell, write_runs
from tests.support.searches import SearchCaNet

FOUND = {"hidden": 128, "tau": 5.0}


def rows(table: Table, backbone: str) -> list[object]:
    return [row[1] for row in table.rows if row[0] == backbone]


def score_of(config: RunConfig) -> float:
    """0.9 for CaNet with searched settings, 0.8 with published settings, 0.7 for other methods."""
    if config.method != "canet":
        return 0.7
    return 0.9 if config.settings["hidden"] == 128 else 0.8


@pytest.fixture
def table1(fresh_cache: Path) -> Table1:
    return Table1(Scope(methods=("canet", "erm"), tasks=("cora", "citeseer")))


def test_searched_canet_follows_published_canet_if_there_was_a_search(
    table1: Table1, search_canet: SearchCaNet, tmp_path: Path
) -> None:
    search_canet("cora", "gcn", **FOUND)
    main, _, runs = table1.tables(write_runs(table1, tmp_path, score_of))
    assert rows(main, "GCN") == ["CaNet", SEARCHED_LABEL, "ERM"]
    assert rows(main, "GAT") == ["CaNet", "ERM"]
    assert rows(runs, "GCN") == ["CaNet", "ERM"]
    assert SEARCHED_NOTE in main.notes
    assert SEARCHED_NOTE not in runs.notes


def test_runs_of_searched_canet_have_its_settings_and_differ_only_in_the_data_seed(
    table1: Table1, search_canet: SearchCaNet
) -> None:
    before = table1.configs()
    search_canet("cora", "gcn", **FOUND)
    added = [config for config in table1.configs() if config not in before]
    assert len(table1.configs()) == len(before) + 5
    assert [(c.data_seed, c.seed) for c in added] == [(draw, 0) for draw in range(5)]
    published = task_settings("cora", "canet", "gcn")
    assert all(config.settings == asdict(published) | FOUND for config in added)


def test_searched_canet_is_ranked_but_has_no_published_score(
    table1: Table1, search_canet: SearchCaNet, tmp_path: Path
) -> None:
    search_canet("cora", "gcn", **FOUND)
    main = table1.tables(write_runs(table1, tmp_path, score_of))[0]
    assert cell(main, "GCN", "CaNet", "cora OOD").published is not None
    assert cell(main, "GCN", SEARCHED_LABEL, "cora OOD").published is None
    assert cell(main, "GCN", SEARCHED_LABEL, "citeseer OOD").text == "–"
    assert f"| GCN | {SEARCHED_LABEL} | **90.00 ± 0.00** | – |" in main.markdown()
    assert "| GCN | CaNet | <u>80.00 ± 0.00</u> | 96.12 ± 1.04 |" in main.markdown()


def test_searched_canet_is_not_in_the_lead_table(
    table1: Table1, search_canet: SearchCaNet, tmp_path: Path
) -> None:
    before = table1.tables(write_runs(table1, tmp_path, score_of))[1]
    search_canet("cora", "gcn", **FOUND)
    lead = table1.tables(write_runs(table1, tmp_path, score_of))[1]
    assert lead == before
    assert lead.rows[0][2:5] == ["1 of 2", "ERM", "+10.00"]


@pytest.mark.parametrize(
    "scope", [Scope(quick=True, tasks=("twitch",)), Scope(methods=("erm",), tasks=("twitch",))]
)
def test_searched_canet_is_neither_in_a_quick_version_nor_without_canet(
    scope: Scope, search_canet: SearchCaNet, small_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANET_DATA_ROOT", str(small_root))
    table2 = Table2(scope)
    before = table2.configs()
    search_canet("twitch", "gcn", **FOUND)
    assert [spec.task for spec in table2.specs] == ["twitch"]
    assert table2.configs() == before
    assert SEARCHED_NOTE not in table2.notes()


def test_searched_canet_is_in_the_tables_of_elliptic_and_not_in_its_figure(
    search_canet: SearchCaNet, small_root: Path, tmp_path: Path
) -> None:
    search_canet("elliptic", "gcn", **FOUND)
    elliptic = Elliptic(Scope(methods=("erm", "canet"), data_root=small_root))
    assert len(elliptic.configs()) == 2 * 2 * 5 + 5
    finished = write_runs(elliptic, tmp_path, score_of)
    for table in elliptic.tables(finished):
        assert rows(table, "GCN") == ["ERM", "CaNet", SEARCHED_LABEL]
        assert rows(table, "GAT") == ["ERM", "CaNet"]
        assert SEARCHED_NOTE in table.notes
    elliptic.draw(finished, tmp_path)
    drawn = (tmp_path / "elliptic.svg").read_text(encoding="utf-8")
    assert "<!-- CaNet -->" in drawn
    assert "searched" not in drawn


def test_a_search_that_finds_the_published_settings_needs_no_more_runs(
    table1: Table1, search_canet: SearchCaNet, tmp_path: Path
) -> None:
    before = table1.configs()
    search_canet("cora", "gcn")
    assert all(config in before for config in table1.configs())
    main = table1.tables(write_runs(table1, tmp_path, score_of))[0]
    ours, again = (cell(main, "GCN", name, "cora OOD") for name in ("CaNet", SEARCHED_LABEL))
    assert again.values == ours.values

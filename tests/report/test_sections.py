from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from canet.data import WITHOUT_SPURIOUS
from canet.defaults import unsearched
from canet.methods.base import Findings
from canet.paper.paper_report import CONTEXT
from canet.report.comparison import compare, find_results
from canet.report.html import Section
from canet.report.page_tables import Column, PageTable, sort_key
from canet.report.score import Score
from canet.store import RunConfig
from tests.support.finished import change_result, make_config, write_run
from tests.support.reproduction import Maker

SCORES = {"ood/domain 4": 0.6, "ood/domain 5": 0.5, "test_id": 0.9}


def section(root: Path) -> Section:
    (comparison,) = compare(find_results(root)[0], CONTEXT)
    return Section(comparison, CONTEXT)


def rows(shown: PageTable) -> dict[str, dict[str, Score]]:
    """The scores of each row by its contender and their columns."""
    return {
        row.label: {
            column.name: cell
            for column in shown.columns
            if isinstance(cell := column.cells[i], Score)
        }
        for i, row in enumerate(shown.rows)
    }


def scores(root: Path) -> dict[str, dict[str, Score]]:
    (table,) = section(root).tables
    return rows(table)


def has_published(row: dict[str, Score]) -> bool:
    return any(score.published for score in row.values())


def write(root: Path, config: RunConfig, **scores: float) -> None:
    write_run(root, config, SCORES | scores)


def test_published_scores_are_shown_if_the_paper_has_them(tmp_path: Path) -> None:
    write(tmp_path, make_config("cora", "canet"))
    found = scores(tmp_path)["CaNet"]
    assert found["OOD mean"].text == "55.00"
    assert found["OOD mean"].published == ("Table 1", 0.9612, 0.0104)
    assert found["domain 4"].published is None


def test_other_settings_have_no_published_number(tmp_path: Path) -> None:
    write(tmp_path, make_config("cora", "canet"))
    write(tmp_path, make_config("cora", "canet", num_environments=5))
    variants, *_ = section(tmp_path).folded
    assert [row.note for row in variants.rows] == ["GCN, num_environments = 5"]
    found = rows(variants)["CaNet"]
    assert not has_published(found)
    assert not any(score.rank for score in found.values())


def test_shifted_columns_are_sorted_by_number_of_runs_and_share(tmp_path: Path) -> None:
    for seed, columns in enumerate(([7, 3], [3])):
        config = replace(make_config(method="canet", interventions="inferred"), seed=seed)
        found = Findings(9, columns, share=[0.9, 0.5][: len(columns)])
        write_run(tmp_path, config, SCORES, findings=found)
    ((_, columns),) = section(tmp_path).shifted_columns
    assert columns == [(3, pytest.approx(0.7)), (7, pytest.approx(0.9))]


def test_the_best_of_each_column_is_marked_and_controls_never(tmp_path: Path) -> None:
    write(tmp_path, make_config(method="erm"), test_id=0.95)
    write(tmp_path, make_config(method="canet"), **{"ood/domain 4": 0.7})
    control = replace(make_config(method="erm"), features=WITHOUT_SPURIOUS)
    write(tmp_path, control, **{"ood/domain 4": 0.99})
    heads = ["OOD mean", "domain 4", "domain 5", "ID"]
    found = scores(tmp_path)
    best = {name: [row[head].rank == 1 for head in heads] for name, row in found.items()}
    assert best == {
        "CaNet": [True, True, True, False],
        "ERM": [False, False, True, True],
        "ERM, without the spurious columns": [False] * 4,
    }


def test_pseudo_environments_have_posteriors_of_one_run_and_means_of_all(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    for seed in (0, 1):
        maker.run(make_config("cora", "canet", seed=seed))
    first, second = section(tmp_path).environments
    assert [first.title, second.title] == ["CaNet, GCN, layer 1", "CaNet, GCN, layer 2"]
    assert "2.31 ± 0.00 of 3" in first.caption
    assert "0.05 ± 0.00" in second.caption
    assert [row.label for row in first.rows][:4] == [
        "training",
        "validation",
        "test, ID",
        "domain 4",
    ]
    shares = [[cell.mean for cell in column.cells] for column in first.columns]
    assert np.sum(shares, axis=0) == pytest.approx(np.ones(len(first.rows)))


def test_settings_that_differ_from_the_default_are_shown(tmp_path: Path) -> None:
    default = asdict(unsearched("twitch", "erm", "gcn"))
    write(tmp_path, make_config("twitch", **default | {"hidden": 8}))
    settings, _ = section(tmp_path).folded
    assert settings.columns[0].cells == ["hidden = 8, loss = binary_cross_entropy"]


def test_models_without_a_backbone_or_epochs_are_not_shown_as_if_they_had_them(
    tmp_path: Path,
) -> None:
    linear = make_config(method="linear", backbone="linear")
    place = write_run(tmp_path, linear, SCORES)
    change_result(place, selection="none", epochs=0, selected_epoch=0)
    found = section(tmp_path)
    assert [table.title for table in found.tables] == ["Models without a backbone"]
    assert "selected" not in found.tables[0].caption
    costs = found.folded[-1]
    assert costs.rows[0].note == ""
    assert {column.name: column.cells[0].text for column in costs.columns[2:3]} == {
        "selected epoch": "–"
    }
    write(tmp_path, make_config())
    (table,) = section(tmp_path).tables
    assert table.title == "GCN and models without a backbone"
    assert "selected by best validation" in table.caption


def test_a_page_sorts_by_the_number_that_a_text_starts_with() -> None:
    texts = ["GCN", "K = 3", "+1.50", "−2.00 ± 0.10", "1 of 9", "–"]
    assert [sort_key(text) for text in texts] == ["GCN", "K = 3", "+1.50", "-2.00", "1", ""]
    assert [Column("", "", [text]).is_text for text in texts] == [
        *(True, True, False, False, False, True)
    ]

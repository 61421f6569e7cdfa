from dataclasses import asdict, replace
from pathlib import Path

import pytest

from canet.data import WITHOUT_SPURIOUS
from canet.defaults import unsearched
from canet.methods.base import Findings
from canet.paper.paper_report import CONTEXT
from canet.report.comparison import compare
from canet.report.results import find_results
from canet.report.score import Score
from canet.report.section_tables import SectionTable
from canet.report.sections import Section, make_section
from canet.store import RunConfig
from tests.support.finished import make_config, write_run
from tests.support.reproduction import Maker

SCORES = {"ood/domain 4": 0.6, "ood/domain 5": 0.5, "test_id": 0.9}


def section(root: Path) -> Section:
    (comparison,) = compare(find_results(root)[0], CONTEXT)
    return make_section(comparison, CONTEXT)


def rows(shown: SectionTable) -> dict[str, dict[str, Score]]:
    """The scores of each row by its contender and their columns."""
    return {
        contender.label: {
            column.name: cell
            for column in shown.columns
            if isinstance(cell := column.cells[i], Score)
        }
        for i, (contender, _) in enumerate(shown.rows)
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
    variants = section(tmp_path).variants
    assert variants
    assert [subtitle for _, subtitle in variants.rows] == ["GCN, num_environments = 5"]
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


def test_pseudo_environments_have_bars_of_one_run_and_means_of_all(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    for seed in (0, 1):
        maker.run(make_config("cora", "canet", seed=seed))
    (found,) = section(tmp_path).pseudo_environments
    assert (found.environments, found.shown_run.seed) == (3, 0)
    assert [layer.effective.mean for layer in found.layers] == [2.31, 2.9]
    assert all(len(layer.effective.values) == 2 for layer in found.layers)
    assert [layer.alignment and layer.alignment.mean for layer in found.layers] == [0.42, 0.05]
    names = [name for name, _ in found.layers[0].bars]
    assert names[:4] == ["training", "validation", "test, ID", "domain 4"]
    assert all(sum(shares) == pytest.approx(1) for _, shares in found.layers[0].bars)


def test_settings_that_differ_from_the_default_are_shown(tmp_path: Path) -> None:
    default = asdict(unsearched("twitch", "erm", "gcn"))
    write(tmp_path, make_config("twitch", **default | {"hidden": 8}))
    ((_, changed),) = section(tmp_path).settings
    assert changed == [("hidden", 8), ("loss", "binary_cross_entropy")]


def test_only_charts_with_many_lines_have_grey_lines(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    for method, level in {"erm": 0.6, "irm": 0.61, "dann": 0.95, "canet": 0.7}.items():
        maker.run(make_config("cora", method), level)
    chart = section(tmp_path).charts[0][1]
    assert set(chart.highlighted) == set(chart.last)
    maker.run(make_config("cora", "mixup"), 0.5)
    chart = section(tmp_path).charts[0][1]
    assert set(chart.highlighted) == {"ERM", "CaNet", "DANN"}

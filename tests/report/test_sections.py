import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from canet.files import write_json
from canet.paper import french_labels
from canet.presets import unsearched
from canet.report.comparison import compare
from canet.report.curves import Histories
from canet.report.results import read_results
from canet.report.score_table import Row, label_of, number, setting_text
from canet.report.sections import Section, make_section
from canet.report.tables import SEARCHED_LABEL, SEARCHED_NOTE
from canet.runs.evaluate import WITHOUT_SPURIOUS
from canet.training import RunConfig
from tests.finished import make_config, write_run
from tests.report.reproduction import Maker
from tests.searches import SearchCaNet

SCORES = {"ood/domain 4": 60.0, "ood/domain 5": 50.0, "test_id": 90.0}


def section(root: Path) -> Section:
    (comparison,) = compare(read_results(root))
    return make_section(comparison, Histories())


def rows(shown: Section) -> dict[str, Row]:
    (table,) = shown.tables
    return {row.name: row for row in table.rows}


def write(root: Path, config: RunConfig, **scores: float) -> None:
    write_run(root, config, SCORES | scores)


def test_published_numbers_stand_below_ours_where_the_paper_has_them(tmp_path: Path) -> None:
    write(tmp_path, make_config("cora", "canet"))
    mean, first, *_ = rows(section(tmp_path))["CaNet"].cells
    assert (mean.text, mean.below) == ("55.00", "paper 96.12 ± 1.04")
    assert first.below == ""


def test_a_method_without_memory_in_the_paper_is_said_so(tmp_path: Path) -> None:
    write(tmp_path, make_config("pubmed", "eerm"))
    assert rows(section(tmp_path))["EERM"].cells[0].below == "paper OOM"


@pytest.mark.parametrize(
    "fields", [{"features": "structural"}, {"protocol": "disjoint"}, {"inductive": True}]
)
def test_no_published_number_stands_beside_runs_of_another_kind(
    fields: dict[str, object], tmp_path: Path
) -> None:
    write(tmp_path, replace(make_config("cora", "canet"), **fields))
    assert not any(
        cell.below.startswith("paper") for cell in rows(section(tmp_path))["CaNet"].cells
    )


def test_no_published_number_stands_beside_other_settings(tmp_path: Path) -> None:
    write(tmp_path, make_config("cora", "canet"))
    write(tmp_path, make_config("cora", "canet", num_environments=5))
    variants = section(tmp_path).variants
    assert variants
    (row,) = variants.rows
    assert row.about == "GCN, num_environments = 5"
    assert not any(cell.below.startswith("paper") for cell in row.cells)
    assert not any(cell.best for cell in row.cells)


def test_searched_canet_has_a_name_and_a_curve_of_its_own_and_no_published_number(
    search_canet: SearchCaNet, tmp_path: Path
) -> None:
    search_canet("cora", hidden=128)
    maker = Maker(tmp_path)
    for changes in ({}, {"hidden": 128}, {"hidden": 32}):
        maker.run(make_config("cora", "canet", **changes))
    shown = section(tmp_path)
    found = rows(shown)
    assert set(found) == {"CaNet", SEARCHED_LABEL}
    assert found["CaNet"].cells[0].below == "paper 96.12 ± 1.04"
    assert all("paper" not in cell.below for cell in found[SEARCHED_LABEL].cells)
    assert [label_of(c) for c in shown.legend] == ["CaNet", SEARCHED_LABEL]
    _, chart = shown.charts[0]
    assert {label_of(line.contestant) for line in chart.lines} == set(found)
    assert shown.variants
    assert [row.about for row in shown.variants.rows] == ["GCN, hidden = 32"]
    assert any(SEARCHED_NOTE in note for note in shown.notes)


def test_structural_results_are_labelled(tmp_path: Path) -> None:
    write(tmp_path, replace(make_config("arxiv"), features="structural"))
    shown = section(tmp_path)
    assert shown.title == "Arxiv, structural"
    assert "structural features" in shown.tags
    assert any("do not compare with published ones" in note for note in shown.notes)


def test_the_published_french_column_stands_beside_shifted_labels_alone(tmp_path: Path) -> None:
    place = write_run(tmp_path, make_config("twitch"), {"ood/FR": 62.0, "test_id": 70.0})
    write_json(place.path / french_labels.FILE, {french_labels.SHIFTED: 52.1})
    shown = section(tmp_path)
    cells = dict(zip(shown.tables[0].columns[1:], rows(shown)["ERM"].cells, strict=True))
    below = {column.name: cell.below for column, cell in cells.items()}
    assert below["FR"] == ""
    assert below[french_labels.SHIFTED] == "paper 52.62 ± 0.01"


def test_the_best_of_each_column_is_marked_and_the_ceiling_never(tmp_path: Path) -> None:
    write(tmp_path, make_config(method="erm"), test_id=95.0)
    write(tmp_path, make_config(method="canet"), **{"ood/domain 4": 70.0})
    ceiling = replace(make_config(method="erm"), features=WITHOUT_SPURIOUS)
    write(tmp_path, ceiling, **{"ood/domain 4": 99.0})
    best = {name: [c.best for c in row.cells[:4]] for name, row in rows(section(tmp_path)).items()}
    assert best == {
        "CaNet": [True, True, True, False],
        "ERM": [False, False, True, True],
        "ERM ceiling": [False] * 4,
    }


def test_a_lonely_method_is_not_marked_best(tmp_path: Path) -> None:
    write(tmp_path, make_config())
    assert not any(cell.best for cell in rows(section(tmp_path))["ERM"].cells)


def test_a_score_that_is_not_a_number_is_a_dash_and_sorts_last(tmp_path: Path) -> None:
    write(tmp_path, make_config(), **{"ood/domain 4": math.nan})
    mean, first, second, *_ = rows(section(tmp_path))["ERM"].cells
    assert [(c.text, c.key) for c in (mean, first, second)] == [("–", ""), ("–", ""), ("50.00", 50)]


def test_nobody_is_best_where_nobody_has_a_score(tmp_path: Path) -> None:
    for method in ("erm", "irm"):
        write(tmp_path, make_config(method=method), test_id=math.nan)
    cells = [row.cells[3] for row in rows(section(tmp_path)).values()]
    assert [(cell.text, cell.best) for cell in cells] == [("–", False)] * 2


def test_number_of_runs_and_what_the_spread_is_over_are_told(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, make_config(seed=seed))
    shown = section(tmp_path)
    last = rows(shown)["ERM"].cells[-1]
    assert (last.text, last.below) == ("3", "3 runs")
    assert shown.tables[0].caption.endswith("over 3 runs, epoch by best validation")


def test_scores_left_out_by_the_paper_are_columns_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, make_config("elliptic"), **{"left_out/steps 6-10": 40.0})
    columns = section(tmp_path).tables[0].columns
    assert ("steps 6-10", "not in the paper") in [column[:2] for column in columns]


def test_inferred_environments_have_bars_of_one_run_and_numbers_of_all(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    for seed in (0, 1):
        maker.run(make_config("cora", "canet", seed=seed))
    (found,) = section(tmp_path).inferred
    assert (found.environments, found.shown) == (3, "data seed 0, run seed 0")
    assert [layer.effective.mean for layer in found.layers] == [2.31, 2.9]
    assert all(layer.effective.size == 2 for layer in found.layers)
    assert [layer.alignment and layer.alignment.mean for layer in found.layers] == [0.42, 0.05]
    names = [name for name, _ in found.layers[0].bars]
    assert names[:4] == ["training", "validation", "test, ID", "domain 4"]
    assert all(sum(shares) == pytest.approx(1) for _, shares in found.layers[0].bars)


def test_a_task_without_true_environments_has_no_match(tmp_path: Path) -> None:
    Maker(tmp_path).run(make_config("twitch", "canet"))
    (found,) = section(tmp_path).inferred
    assert all(layer.alignment is None for layer in found.layers)


def test_runs_that_tell_no_environments_have_no_bars(tmp_path: Path) -> None:
    write(tmp_path, make_config("cora", "canet"))
    assert section(tmp_path).inferred == []


def test_settings_that_differ_from_the_default_come_first(tmp_path: Path) -> None:
    default = asdict(unsearched("twitch", "erm", "gcn"))
    write(tmp_path, make_config("twitch", **default | {"hidden": 8}))
    (setup,) = section(tmp_path).setups
    assert setup.changed == [("hidden", 8), ("loss", "binary_cross_entropy")]
    assert dict(setup.every)["epochs"] == 500


def test_short_training_is_said(tmp_path: Path) -> None:
    write(tmp_path, make_config(epochs=40))
    assert any("40 instead of 500" in note for note in section(tmp_path).notes)


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.001, "0.00"), (-1.5, "−1.50"), (math.nan, "–"), (math.inf, "–"), (2.0, "2.00")],
)
def test_numbers_read_well(value: float, text: str) -> None:
    assert number(value, 2) == text


@pytest.mark.parametrize(
    ("value", "text"), [(5e-05, "5e-05"), (None, "none"), (True, "true"), (64, "64")]
)
def test_settings_read_as_on_the_command_line(value: object, text: str) -> None:
    assert setting_text(value) == text

from __future__ import annotations

from pathlib import Path

import pytest

from canet.report.comparison import ReportContext, compare
from canet.report.overview import OverviewRow, count_best, make_overview
from canet.report.results import find_results
from canet.report.score import Published
from canet.report.sections import make_section
from tests.support.finished import make_config, write_run


def overview(root: Path, context: ReportContext | None = None) -> list[OverviewRow]:
    context = context or ReportContext()
    comparisons = compare(find_results(root)[0], context)
    sections = [make_section(comparison, context) for comparison in comparisons]
    return list(make_overview(sections, context))


def write(root: Path, **scores: float) -> None:
    for method, score in scores.items():
        write_run(root, make_config(method=method), {"ood/far": score, "test_id": 0.9})


def test_a_row_needs_two_methods_and_orders_them_by_their_published_scores(tmp_path: Path) -> None:
    numbers = {"canet": 0.8, "erm": 0.85}
    context = ReportContext(published=lambda c, s: Published("Table", numbers[c.method], 0.01))
    write(tmp_path, canet=0.8)
    assert overview(tmp_path) == []
    write(tmp_path, erm=0.6)
    (row,) = overview(tmp_path, context)
    assert row.paper == [(pytest.approx(85.0), "ERM"), (pytest.approx(80.0), "CaNet")]


def test_methods_that_are_best_equally_often_are_counted_together(tmp_path: Path) -> None:
    for task, canet in (("cora", 0.8), ("synthetic", 0.6), ("citeseer", 0.9)):
        for method, score in {"canet": canet, "erm": 0.7}.items():
            write_run(tmp_path, make_config(task, method), {"ood/far": score, "test_id": 0.9})
    rankings = [row.ranking for row in overview(tmp_path)]
    assert count_best(rankings) == [(2, ["CaNet"]), (1, ["ERM"])]
    assert count_best(rankings[:2]) == [(1, ["CaNet", "ERM"])]

from pathlib import Path

from canet.report.comparison import Ranking, ReportContext, compare, find_results
from canet.report.html import Section, count_best, make_overview
from canet.report.page_tables import PageTable
from canet.report.score import Published, Score
from tests.support.finished import make_config, write_run


def overview(root: Path, context: ReportContext | None = None) -> tuple[list[Ranking], PageTable]:
    context = context or ReportContext()
    comparisons = compare(find_results(root)[0], context)
    return make_overview([Section(one, context) for one in comparisons], context)


def write(root: Path, **scores: float) -> None:
    for method, score in scores.items():
        write_run(root, make_config(method=method), {"ood/far": score, "test_id": 0.9})


def test_a_row_needs_two_methods_and_shows_published_scores(tmp_path: Path) -> None:
    context = ReportContext(published=lambda config, split: Published("Table", 0.85, 0.01))
    write(tmp_path, canet=0.8)
    assert overview(tmp_path)[0] == []
    write(tmp_path, erm=0.6)
    _, table = overview(tmp_path, context)
    assert [(row.label, row.note) for row in table.rows] == [("Synthetic", "GCN")]
    cells = {column.name: column.cells[0] for column in table.columns}
    assert cells["best"] == "CaNet, 20.0 points above ERM (single runs)"
    assert isinstance(cells["ERM"], Score)
    assert (cells["ERM"].text, cells["ERM"].rank) == ("60.00", 2)
    assert cells["ERM"].published == ("Table", 0.85, 0.01)


def test_methods_that_are_best_equally_often_are_counted_together(tmp_path: Path) -> None:
    for task, canet in (("cora", 0.8), ("synthetic", 0.6), ("citeseer", 0.9)):
        for method, score in {"canet": canet, "erm": 0.7}.items():
            write_run(tmp_path, make_config(task, method), {"ood/far": score, "test_id": 0.9})
    rankings, _ = overview(tmp_path)
    assert count_best(rankings) == [(2, ["CaNet"]), (1, ["ERM"])]
    assert count_best(rankings[:2]) == [(1, ["CaNet", "ERM"])]

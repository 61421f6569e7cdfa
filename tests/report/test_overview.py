from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from canet.report.comparison import compare
from canet.report.context import ReportContext
from canet.report.overview import Axis, Standing, apart, count_best, make_standings
from canet.report.results import find_results
from canet.report.score import Published
from canet.report.sections import make_section
from tests.finished import make_config, write_run


def standings(root: Path, context: ReportContext | None = None) -> list[Standing]:
    context = context or ReportContext()
    comparisons = compare(find_results(root)[0], context)
    sections = [make_section(comparison, context) for comparison in comparisons]
    return list(make_standings(sections, Axis.of(comparisons), context))


def write(root: Path, **scores: float) -> None:
    for method, score in scores.items():
        write_run(root, make_config(method=method), {"ood/far": score, "test_id": 90.0})


def test_dots_at_one_place_go_out_from_the_line_on_both_sides() -> None:
    assert apart([10.0, 50.0, 30.0], 3.0) == [0, 0, 0]
    assert apart([50.0] * 5, 3.0) == [0, 1, -1, 2, -2]


@given(st.lists(st.floats(0, 100), max_size=15))
def test_no_dot_hides_another(places: list[float]) -> None:
    lanes = apart(places, 3.0)
    assert apart(places, 3.0) == lanes
    for lane in set(lanes):
        there = sorted(x for x, own in zip(places, lanes, strict=True) if own == lane)
        assert all(b - a >= 3.0 for a, b in pairwise(there))


def test_all_that_are_tied_are_large_dots(tmp_path: Path) -> None:
    write(tmp_path, canet=80.0, erm=80.001, irm=60.0)
    (standing,) = standings(tmp_path)
    assert {dot.contender.label for dot in standing.dots if dot.is_best} == {"CaNet", "ERM"}
    assert sorted(dot.lane for dot in standing.dots) == [0, 0, 1]


def test_methods_are_ordered_by_their_published_scores(tmp_path: Path) -> None:
    numbers = {"canet": 80.0, "erm": 85.0}
    context = ReportContext(published=lambda c, s: Published("Table", numbers[c.method], 1.0))
    write(tmp_path, canet=80.0, erm=60.0)
    (standing,) = standings(tmp_path, context)
    assert standing.paper == [(85.0, "ERM"), (80.0, "CaNet")]


def test_methods_that_are_best_equally_often_are_counted_together(tmp_path: Path) -> None:
    for task, canet in (("cora", 80.0), ("synthetic", 60.0), ("citeseer", 90.0)):
        for method, score in {"canet": canet, "erm": 70.0}.items():
            write_run(tmp_path, make_config(task, method), {"ood/far": score, "test_id": 90.0})
    verdicts = [standing.verdict for standing in standings(tmp_path)]
    assert count_best(verdicts) == [(2, ["CaNet"]), (1, ["ERM"])]
    assert count_best(verdicts[:2]) == [(1, ["CaNet", "ERM"])]

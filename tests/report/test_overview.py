from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canet.report.comparison import compare
from canet.report.context import ReportContext
from canet.report.overview import Axis, Standing, apart, make_standings
from canet.report.results import read_results
from canet.report.score import Published
from canet.report.sections import make_section
from tests.finished import make_config, write_run


def standings(root: Path, context: ReportContext | None = None) -> list[Standing]:
    context = context or ReportContext()
    comparisons = compare(read_results(root), context)
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
    assert standing.lanes == 3


@pytest.mark.parametrize(
    ("erm", "text"), [(70.0, "paper: CaNet, 10.0 above ERM"), (80.0, "paper: CaNet and ERM tied")]
)
def test_who_is_best_in_the_paper_may_be_a_tie(erm: float, text: str, tmp_path: Path) -> None:
    numbers = {"canet": 80.0, "erm": erm}
    context = ReportContext(published=lambda c, s: Published("Table", numbers[c.method], 1.0))
    write(tmp_path, canet=80.0, erm=60.0)
    (standing,) = standings(tmp_path, context)
    assert standing.paper == text

import math
from collections.abc import Collection
from pathlib import Path

import pytest

from canet.report.comparison import compare
from canet.report.curves import (
    MAX_POINTS,
    Chart,
    draw_chart,
    nice_ticks,
    read_curves,
)
from canet.report.results import find_results
from tests.finished import make_config, write_run

SCORES = {"test_id": 90.0, "ood/near": 60.0, "ood/far": 50.0}


def chart_of(root: Path, **histories: list[float]) -> Chart | None:
    """A run of ERM for each validation curve."""
    for seed, curve in enumerate(histories.values()):
        write_run(root, make_config(seed=seed), SCORES, {"loss": [], "valid": curve})
    return draw(root)


def draw(root: Path, quiet: Collection[str] = ()) -> Chart | None:
    (comparison,) = compare(find_results(root)[0])
    curves = [(c, read_curves(c)["validation"]) for c in comparison.contenders]
    return draw_chart(curves, quiet)


def points(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def score_at(chart: Chart, y: float) -> float:
    share = (Chart.bottom - y) / (Chart.bottom - Chart.top)
    return chart.lowest + share * (chart.highest - chart.lowest)


def test_a_line_is_the_mean_of_the_runs_and_its_band_one_deviation(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[40.0, 60.0, 80.0], b=[50.0, 70.0, 60.0])
    assert chart
    (line,) = chart.lines
    means = [score_at(chart, y) for _, y in points(line.points)]
    assert means == pytest.approx([45, 65, 70], abs=0.2)
    upper = [score_at(chart, y) for _, y in points(line.band)[:3]]
    spread = 50**0.5
    assert upper == pytest.approx([45 + spread, chart.highest, chart.highest], abs=0.2)
    assert line.last == 70.0


def test_long_curves_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[50 + i / 50 for i in range(1000)])
    assert chart
    line = points(chart.lines[0].points)
    assert len(line) == MAX_POINTS
    assert (line[0][0], line[-1][0]) == (Chart.left, Chart.right)


def test_every_point_is_within_the_axes(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[0.0, *[90.0] * 30, 91.0])
    assert chart
    assert chart.lowest >= 85
    for x, y in points(chart.lines[0].points):
        assert Chart.left <= x <= Chart.right
        assert Chart.top <= y <= Chart.bottom


def test_what_is_not_a_number_is_a_gap(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[40.0, math.nan, 60.0])
    assert chart
    assert len(points(chart.lines[0].points)) == 2


@pytest.mark.parametrize("curve", [[], [50.0], [math.nan, math.nan]])
def test_no_chart_without_two_epochs_of_scores(curve: list[float], tmp_path: Path) -> None:
    assert chart_of(tmp_path, a=curve) is None


@pytest.mark.parametrize(
    ("low", "high"), [(41.3, 97.9), (50.0, 50.0), (93.2, 93.9), (0.0, 100.0), (88.0, 92.0)]
)
def test_ticks_enclose_the_scores_and_are_few(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low <= high <= ticks[-1]
    assert 2 <= len(ticks) <= 7


def test_quiet_lines_are_drawn_first_below_the_others(tmp_path: Path) -> None:
    for method in ("irm", "erm", "mixup"):
        history = {"loss": [], "valid": [50.0, 60.0, 70.0]}
        write_run(tmp_path, make_config(method=method), SCORES, history)
    chart = draw(tmp_path, quiet={"ERM", "Mixup"})
    assert chart
    assert [line.in_focus for line in chart.lines] == [False, False, True]
    assert chart.lines[-1].contender.label == "IRM"


def test_runs_that_stopped_early_count_as_far_as_they_went(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[40.0, 50.0, 60.0], b=[60.0])
    assert chart
    assert chart.epochs == 3
    means = [score_at(chart, y) for _, y in points(chart.lines[0].points)]
    assert means == pytest.approx([50, 50, 60], abs=0.2)


def test_scores_under_shift_are_the_mean_of_the_sets(tmp_path: Path) -> None:
    history = {"loss": [], "valid": [1.0, 2.0], "ood/near": [40.0, 60.0], "ood/far": [20.0, 40.0]}
    write_run(tmp_path, make_config(), SCORES, history)
    ((contender,),) = (comparison.contenders for comparison in compare(find_results(tmp_path)[0]))
    assert [curve.tolist() for curve in read_curves(contender)["under shift"]] == [[30.0, 50.0]]

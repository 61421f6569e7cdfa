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
from tests.support.finished import make_config, write_run

SCORES = {"test_id": 0.9, "ood/near": 0.6, "ood/far": 0.5}


def chart_of(root: Path, **histories: list[float]) -> Chart | None:
    """A run of ERM for each validation curve."""
    for seed, curve in enumerate(histories.values()):
        write_run(root, make_config(seed=seed), SCORES, {"loss": [], "valid": curve})
    return draw(root)


def draw(root: Path, background: Collection[str] = ()) -> Chart | None:
    (comparison,) = compare(find_results(root)[0])
    curves = [(c, read_curves(c)["validation"]) for c in comparison.contenders]
    return draw_chart(curves, background)


def points(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def score_at(chart: Chart, y: float) -> float:
    share = (Chart.bottom - y) / (Chart.bottom - Chart.top)
    return chart.lowest + share * (chart.highest - chart.lowest)


def test_a_line_is_the_mean_of_the_runs_and_its_band_one_deviation(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[0.4, 0.6, 0.8], b=[0.5, 0.7, 0.6])
    assert chart
    (line,) = chart.lines
    means = [score_at(chart, y) for _, y in points(line.points)]
    assert means == pytest.approx([45, 65, 70], abs=0.2)
    upper = [score_at(chart, y) for _, y in points(line.band)[:3]]
    spread = 50**0.5
    assert upper == pytest.approx([45 + spread, chart.highest, chart.highest], abs=0.2)
    assert line.last == pytest.approx(70.0)


def test_long_curves_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[0.5 + i / 5000 for i in range(1000)])
    assert chart
    line = points(chart.lines[0].points)
    assert len(line) == MAX_POINTS
    assert (line[0][0], line[-1][0]) == (Chart.left, Chart.right)


def test_every_point_is_within_the_axes(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[0.0, *[0.9] * 30, 0.91])
    assert chart
    assert chart.lowest >= 85
    for x, y in points(chart.lines[0].points):
        assert Chart.left <= x <= Chart.right
        assert Chart.top <= y <= Chart.bottom


def test_nan_is_a_gap(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[0.4, math.nan, 0.6])
    assert chart
    assert len(points(chart.lines[0].points)) == 2


@pytest.mark.parametrize("curve", [[], [0.5], [math.nan, math.nan]])
def test_no_chart_without_two_epochs_of_scores(curve: list[float], tmp_path: Path) -> None:
    assert chart_of(tmp_path, a=curve) is None


@pytest.mark.parametrize(
    ("low", "high"), [(41.3, 97.9), (50.0, 50.0), (93.2, 93.9), (0.0, 100.0), (88.0, 92.0)]
)
def test_ticks_enclose_the_scores_and_are_few(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low <= high <= ticks[-1]
    assert 2 <= len(ticks) <= 7


def test_background_lines_are_below_the_others(tmp_path: Path) -> None:
    for method in ("irm", "erm", "mixup"):
        history = {"loss": [], "valid": [0.5, 0.6, 0.7]}
        write_run(tmp_path, make_config(method=method), SCORES, history)
    chart = draw(tmp_path, background={"ERM", "Mixup"})
    assert chart
    assert [line.is_highlighted for line in chart.lines] == [False, False, True]
    assert chart.lines[-1].contender.label == "IRM"


def test_the_mean_of_an_epoch_is_over_the_runs_that_reached_it(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, a=[0.4, 0.5, 0.6], b=[0.6])
    assert chart
    assert chart.epochs == 3
    means = [score_at(chart, y) for _, y in points(chart.lines[0].points)]
    assert means == pytest.approx([50, 50, 60], abs=0.2)


def test_scores_under_shift_are_the_mean_of_the_sets(tmp_path: Path) -> None:
    history = {"loss": [], "valid": [0.1, 0.2], "ood/near": [0.4, 0.6], "ood/far": [0.2, 0.4]}
    write_run(tmp_path, make_config(), SCORES, history)
    ((contender,),) = (comparison.contenders for comparison in compare(find_results(tmp_path)[0]))
    (curve,) = read_curves(contender)["under shift"]
    assert curve == pytest.approx([0.3, 0.5])

import math
import re
from pathlib import Path

import numpy as np
import pytest

from canet.report.comparison import compare
from canet.report.curves import MAX_POINTS, Chart, draw_chart, nice_ticks, read_curves
from canet.report.results import find_results
from tests.support.finished import make_config, write_run

SCORES = {"test_id": 0.9, "ood/near": 0.6, "ood/far": 0.5}


def chart_of(root: Path, *curves: list[float], background: tuple[str, ...] = ()) -> Chart | None:
    """A run of ERM for each validation curve."""
    for seed, curve in enumerate(curves):
        write_run(root, make_config(seed=seed), SCORES, {"loss": [], "valid": curve})
    (comparison,) = compare(find_results(root)[0])
    return draw_chart(
        [(c, read_curves(c)["validation"]) for c in comparison.contenders], background
    )


def means(chart: Chart) -> np.ndarray:
    """Epochs and scores $[n, 2]$ of the first line, read off its path as the script does."""
    path = re.search(r'<g class="line of-\w+.*?<path d="(.*?)"', chart.svg)
    assert path
    x, y = np.array(re.findall(r"([-\d.]+) ([-\d.]+)", path[1]), dtype=float).T
    epochs = np.interp(x, [Chart.left, Chart.right], [1, chart.epochs])
    share = (Chart.bottom - y) / (Chart.bottom - Chart.top)
    return np.stack([epochs, chart.lowest + share * (chart.highest - chart.lowest)], axis=1)


def test_a_line_is_the_mean_of_the_runs_that_reached_an_epoch(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, [0.4, 0.5, 0.6], [0.6])
    assert chart
    assert means(chart) == pytest.approx(np.array([[1, 50], [2, 50], [3, 60]]), abs=0.1)
    assert chart.has_bands
    assert chart.last == {"ERM": pytest.approx(60)}


def test_long_curves_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, [0.5 + 0.1 * math.sin(i) for i in range(1000)])
    assert chart
    assert len(means(chart)) == MAX_POINTS
    assert means(chart)[[0, -1], 0] == pytest.approx([1, 1000], abs=1)


def test_a_weak_start_does_not_flatten_the_chart(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, [0.0, *[0.9] * 30, 0.91])
    assert chart
    assert chart.lowest >= 85


@pytest.mark.parametrize("curve", [[], [0.5], [math.nan, math.nan]])
def test_no_chart_without_two_epochs_of_scores(curve: list[float], tmp_path: Path) -> None:
    assert chart_of(tmp_path, curve) is None


@pytest.mark.parametrize(("low", "high"), [(41.3, 97.9), (50.0, 50.0), (0.0, 100.0)])
def test_ticks_enclose_the_scores_and_are_few(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low <= high <= ticks[-1]
    assert 2 <= len(ticks) <= 7


def test_background_lines_are_grey_and_below_the_others(tmp_path: Path) -> None:
    for method in ("irm", "mixup"):
        history = {"loss": [], "valid": [0.5, 0.6, 0.7]}
        write_run(tmp_path, make_config(method=method), SCORES, history)
    chart = chart_of(tmp_path, [0.5, 0.6, 0.7], background=("ERM", "Mixup"))
    assert chart
    assert chart.highlighted == ["IRM"]
    assert list(chart.last)[-1] == "IRM"
    assert chart.svg.count(" background") == 2


def test_scores_under_shift_are_the_mean_of_the_sets(tmp_path: Path) -> None:
    history = {"loss": [], "valid": [0.1, 0.2], "ood/near": [0.4, 0.6], "ood/far": [0.2, 0.4]}
    write_run(tmp_path, make_config(), SCORES, history)
    ((contender,),) = (comparison.contenders for comparison in compare(find_results(tmp_path)[0]))
    (curve,) = read_curves(contender)["under shift"]
    assert curve == pytest.approx([0.3, 0.5])

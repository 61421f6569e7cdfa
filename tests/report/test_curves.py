import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from canet.report.comparison import compare, find_results
from canet.report.curves import LABEL_STEP, MAX_BANDS, MAX_POINTS, curve_figure, read_curves
from tests.support.finished import make_config, write_run

SCORES = {"test_id": 0.9, "ood/near": 0.6, "ood/far": 0.5}


def panel(root: Path, *curves: list[float], **methods: list[float]) -> Axes | None:
    """The panel of a run of ERM for each validation curve, and a run of each method."""
    configs = [(make_config(seed=seed), curve) for seed, curve in enumerate(curves)]
    configs += [(make_config(method=name), curve) for name, curve in methods.items()]
    for config, curve in configs:
        write_run(root, config, SCORES, {"loss": [], "valid": curve})
    (comparison,) = compare(find_results(root)[0])
    figure = curve_figure(comparison)
    return figure and figure.axes[0]


def test_a_line_is_the_mean_of_the_runs_that_reached_an_epoch(tmp_path: Path) -> None:
    axes = panel(tmp_path, [0.4, 0.5, 0.6], [0.6, 0.7])
    assert axes
    assert axes.get_title("left") == "GCN, validation"
    assert axes.lines[0].get_xdata() == pytest.approx([1, 2, 3])
    assert axes.lines[0].get_ydata() == pytest.approx([50, 60, 60])
    assert len(axes.collections) == 1


def test_long_curves_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    axes = panel(tmp_path, [0.5 + 0.1 * math.sin(i) for i in range(1000)])
    assert axes
    epochs = np.asarray(axes.lines[0].get_xdata())
    assert (len(epochs), epochs[0], epochs[-1]) == (MAX_POINTS, 1, 1000)


def test_a_weak_start_does_not_flatten_the_chart_and_stays_inside_the_frame(tmp_path: Path) -> None:
    axes = panel(tmp_path, [0.0, *[0.9] * 30, 0.91])
    assert axes
    assert axes.get_ylim()[0] >= 85
    assert all(line.get_clip_on() for line in axes.lines)


@pytest.mark.parametrize("curve", [[], [0.5], [math.nan, math.nan]])
def test_no_chart_without_two_epochs_of_scores(curve: list[float], tmp_path: Path) -> None:
    assert panel(tmp_path, curve) is None


def test_many_lines_have_no_bands_and_a_label_each_that_hides_no_other(tmp_path: Path) -> None:
    names = ["irm", "mixup", "dann", "coral", "group_dro", "canet"][:MAX_BANDS]
    curve = [0.5, 0.6, 0.7]
    axes = panel(tmp_path, curve, [0.6, 0.7, 0.8], **dict.fromkeys(names, curve))
    assert axes
    assert (len(axes.lines), len(axes.collections)) == (MAX_BANDS + 1, 0)
    assert {text.get_text() for text in axes.texts} == {line.get_label() for line in axes.lines}
    low, high = axes.get_ylim()
    places = sorted(text.get_position()[1] for text in axes.texts)
    assert min(np.diff(places)) >= 0.99 * LABEL_STEP * (high - low)
    assert places[-1] <= high


def test_a_start_that_does_not_flatten_the_chart_is_shown(tmp_path: Path) -> None:
    axes = panel(tmp_path, [0.55, 0.6, *np.linspace(0.7, 0.9, 28)])
    assert axes
    assert axes.get_ylim()[0] < 55


def test_scores_under_shift_are_the_mean_of_the_sets(tmp_path: Path) -> None:
    history = {"loss": [], "valid": [0.1, 0.2], "ood/near": [0.4, 0.6], "ood/far": [0.2, 0.4]}
    write_run(tmp_path, make_config(), SCORES, history)
    ((contender,),) = (comparison.contenders for comparison in compare(find_results(tmp_path)[0]))
    (curve,) = read_curves(contender)["under shift"]
    assert curve == pytest.approx([0.3, 0.5])

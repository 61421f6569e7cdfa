from pathlib import Path

import pytest

from canet.report.figures import Style, draw_band, draw_bars, draw_rows, new_figure, tidy
from canet.util.rendering import save_figure


def test_a_figure_has_the_same_bytes_every_time(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        figure = new_figure(1, 1)
        axes = figure.subplots()
        draw_band(axes, [1, 2, 3], [[0.1, 0.2], [], [0.3]], Style("#0072b2"), "line")
        tidy(axes, "title")
        save_figure(figure, tmp_path / folder, "picture")
    for name in ("picture.svg", "picture.png"):
        content = (tmp_path / "first" / name).read_bytes()
        assert content == (tmp_path / "second" / name).read_bytes()
    assert b"<dc:date>" not in (tmp_path / "first" / "picture.svg").read_bytes()


def test_bars_start_at_zero_and_may_have_no_runs() -> None:
    axes = new_figure(1, 1).subplots()
    draw_bars(axes, ["a", "b"], [("one", "red", [[0.6, 0.62], []]), ("two", "blue", [[], []])])
    assert axes.get_ylim() == (0, 100)
    assert all(bar.get_y() == 0 for bar in axes.patches)


def test_rows_show_mean_spread_and_every_run_and_no_bar() -> None:
    axes = new_figure(1, 1).subplots()
    draw_rows(axes, [("full", "red", [0.6, 0.62]), ("less", "grey", []), ("one", "blue", [0.99])])
    assert not axes.patches
    assert [label.get_text() for label in axes.get_yticklabels()] == ["full", "less", "one"]
    first = axes.containers[0]
    assert first.lines[0].get_xdata() == pytest.approx([61.0])

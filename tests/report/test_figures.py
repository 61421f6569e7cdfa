from pathlib import Path

import pytest

from canet.report.figures import (
    Style,
    draw_band,
    draw_bars,
    draw_rows,
    new_figure,
    save_figure,
    tidy,
)


def test_a_figure_has_the_same_bytes_every_time(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        figure = new_figure(1, 1)
        axes = figure.subplots()
        draw_band(axes, [1, 2, 3], [[1.0, 2.0], [], [3.0]], Style("#0072b2"), "line")
        tidy(axes, "title")
        save_figure(figure, tmp_path / folder, "picture")
    for name in ("picture.svg", "picture.png"):
        content = (tmp_path / "first" / name).read_bytes()
        assert content == (tmp_path / "second" / name).read_bytes()
    assert b"<dc:date>" not in (tmp_path / "first" / "picture.svg").read_bytes()


def test_bars_begin_at_nought_and_are_drawn_where_some_have_no_run() -> None:
    axes = new_figure(1, 1).subplots()
    draw_bars(axes, ["a", "b"], [("one", "red", [[60.0, 62.0], []]), ("two", "blue", [[], []])])
    assert axes.get_ylim() == (0, 100)
    assert all(bar.get_y() == 0 for bar in axes.patches)


def test_rows_show_mean_spread_and_every_run_and_no_bar() -> None:
    axes = new_figure(1, 1).subplots()
    draw_rows(axes, [("full", "red", [60.0, 62.0]), ("less", "grey", []), ("one", "blue", [99.0])])
    assert not axes.patches
    assert [label.get_text() for label in axes.get_yticklabels()] == ["full", "less", "one"]
    (first, other) = axes.containers
    assert first.lines[0].get_xdata().tolist() == [61.0]
    (whisker,) = first.lines[2]
    assert whisker.get_segments()[0][:, 0] == pytest.approx([61 - 2**0.5, 61 + 2**0.5])
    (whisker,) = other.lines[2]
    assert whisker.get_segments()[0][:, 0].tolist() == [99.0, 99.0]


def test_a_percentage_has_no_spread_beyond_a_hundred() -> None:
    axes = new_figure(1, 1).subplots()
    draw_rows(axes, [("full", "red", [90.0, 100.0])])
    (whisker,) = axes.containers[0].lines[2]
    assert whisker.get_segments()[0][:, 0].max() == 100.0


def test_a_band_of_one_place_is_a_stroke() -> None:
    axes = new_figure(1, 1).subplots()
    draw_band(axes, [3], [[50.0, 52.0]], Style("#0072b2"), "line")
    (stroke,) = axes.collections
    assert stroke.get_segments()[0][:, 1] == pytest.approx([51 - 2**0.5, 51 + 2**0.5])

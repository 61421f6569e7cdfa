from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from canet.report import figures
from canet.report.figures import (
    COLOURS,
    DemoLine,
    Style,
    draw_band,
    draw_bars,
    draw_demo,
    new_figure,
    save_figure,
    tidy,
)

LINES = [
    DemoLine(
        label,
        [90.0 - 10 * i, 92.0 - 10 * i],
        [60.0 + 5 * i, 66.0 + 5 * i],
        np.linspace([20.0, 22.0], [60.0 + 5 * i, 66.0 + 5 * i], 30, axis=1),
    )
    for i, label in enumerate(("one", "two", "three"))
]


def test_picture_is_a_png_with_a_colour_for_each_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "demo.png"
    draw_demo(LINES, path)
    with Image.open(path) as image:
        assert (image.format, image.size) == ("PNG", (1500, 600))
        pixels = np.asarray(image.convert("RGB"), dtype=float) / 255
    for colour in COLOURS:
        near = np.abs(pixels - to_rgb(colour)).max(axis=2) < 0.02
        assert near.sum() > 200
    assert [file.name for file in path.parent.iterdir()] == ["demo.png"]


def test_picture_that_cannot_be_drawn_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "demo.png"
    path.write_bytes(b"old")

    def fail(self: object, target: Path, format: str) -> None:
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figures.Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        draw_demo(LINES, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


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


def test_bars_are_drawn_where_some_have_no_run() -> None:
    axes = new_figure(1, 1).subplots()
    draw_bars(axes, ["a", "b"], [("one", "red", [[60.0, 62.0], []]), ("two", "blue", [[], []])])
    low, high = axes.get_ylim()
    assert 0 < low < 60
    assert 62 < high < 100

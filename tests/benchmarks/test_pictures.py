from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from benchmarks import pictures
from benchmarks.pictures import draw_growth, draw_ratios
from benchmarks.results import Results

RESULTS = Path(__file__).parents[2] / "results" / "performance"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    figures: list[Figure] = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, *_: figures.append(figure))
    return figures


def test_growth_has_a_panel_for_each_axis_in_rows_of_three(drawn: list[Figure]) -> None:
    results = Results.read(RESULTS / "cpu-growth.json")
    draw_growth(results, Path(), "growth")
    shown = [axes for axes in drawn[0].axes if axes.axison]
    assert [axes.get_xlabel() for axes in shown] == [
        *("nodes", "edges", "environments K", "layers", "hidden size")
    ]
    assert len(drawn[0].axes) == 6
    slopes = {line.backbone: line.time_slope for line in results.growth() if line.axis == "nodes"}
    text = f"slopes: GCN {slopes['gcn']:.2f}, GAT {slopes['gat']:.2f}"
    assert shown[0].get_title(loc="left") == text
    ticks = [label.get_text() for label in shown[0].get_xticklabels()]
    assert ticks == ["25 k", "50 k", "100 k", "200 k"]


def test_ratios_are_dots_and_no_bars_on_their_log_axis(drawn: list[Figure]) -> None:
    draw_ratios([Results.read(RESULTS / "cpu-small.json")], Path(), "ratios")
    (axes,) = drawn[0].axes
    assert axes.get_xscale() == "log"
    assert not axes.patches
    bounds, measured = axes.lines
    assert len(measured.get_xdata()) == len(bounds.get_xdata()) > 5
    assert axes.get_xlim()[0] <= min(*measured.get_xdata(), *bounds.get_xdata())

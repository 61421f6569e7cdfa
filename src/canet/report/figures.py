"""Figures: one style, drawn with matplotlib, written atomically and the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from canet.util.files import atomic_path

MARKERS = "osD^vPX*p"
QUIET = "0.8"
"""The grey of lines that stand behind those a panel is about."""
LegendPlace = Literal["outside lower center", "outside right center"]
DOT: Any = {
    "color": "black",
    "markersize": 3.2,
    "alpha": 0.65,
    "markeredgecolor": "white",
    "markeredgewidth": 0.4,
    "zorder": 3,
}
REPRODUCIBLE: Any = {"svg.hashsalt": "canet"}
METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {"Software": None}}


class Style(NamedTuple):
    """How a line looks, and how opaque the band about it is."""

    colour: str
    marker: str = "o"
    dashes: str = "-"
    width: float = 1.4
    band: float = 0.13


def new_figure(rows: int, columns: int, width: float = 5.0, height: float = 3.6) -> Figure:
    """A figure of `rows` × `columns` panels, each `width` × `height` inches."""
    return Figure(figsize=(columns * width, rows * height), layout="constrained", dpi=150)


def tidy(axes: Any, title: str = "", x: str = "", y: str = "") -> None:
    """Title at the left, no box, a faint grid behind the data."""
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)


def draw_band(
    axes: Any, x: Sequence[float], runs: Sequence[Sequence[float]], style: Style, label: str
) -> None:
    """Mean over runs as a line, and one standard deviation around it as a band, or a stroke.

    `runs` has the values at each place of `x`, any number each; a place without one is a gap.
    """
    centre = np.array([np.mean(values) if len(values) else np.nan for values in runs])
    spread = np.array([np.std(values, ddof=1) if len(values) > 1 else 0.0 for values in runs])
    colour, marker = style.colour, style.marker if len(x) < 30 else ""
    line: Any = {"linestyle": style.dashes, "linewidth": style.width, "color": colour}
    axes.plot(x, centre, **line, marker=marker, markersize=4.5, label=label)
    low, high = centre - spread, centre + spread
    if len(x) == 1:
        axes.vlines(x, low, high, color=colour, alpha=3 * style.band)
    else:
        axes.fill_between(x, low, high, color=colour, alpha=style.band, linewidth=0)


def draw_bars(
    axes: Any, groups: Sequence[str], bars: Sequence[tuple[str, str, Sequence[Sequence[float]]]]
) -> None:
    """Bars of percentages side by side in each group, from 0 on, with a dot for every run.

    Each of `bars` has a label, a colour and, for each group, the values of any number of runs.
    """
    places = np.arange(len(groups))
    width = 0.84 / len(bars)
    for i, (label, colour, values) in enumerate(bars):
        at = places + (i - (len(bars) - 1) / 2) * width
        means = [np.mean(runs) if len(runs) else np.nan for runs in values]
        axes.bar(at, means, width * 0.92, color=colour, alpha=0.85, label=label)
        for x, runs in zip(at, values, strict=True):
            axes.plot(side_by_side(x, len(runs), 0.7 * width), runs, "o", **DOT)
    axes.set_xticks(places, groups)
    axes.set_ylim(0, 100)


def draw_rows(axes: Any, rows: Sequence[tuple[str, str, Sequence[float]]]) -> None:
    """A label, a colour and percentages per row: every run, their mean and standard deviation.

    Without bars, the axis may begin where the scores do. A line marks the mean of the first row.
    """
    places = range(len(rows))
    for place, (_, colour, runs) in zip(places, rows, strict=True):
        if not runs:
            continue
        centre, spread = np.mean(runs), np.std(runs, ddof=1) if len(runs) > 1 else 0.0
        within = [[min(spread, centre)], [min(spread, 100 - centre)]]
        axes.errorbar(centre, place, xerr=within, fmt="D", color=colour, markersize=6)
        axes.plot(runs, side_by_side(place, len(runs), 0.5), "o", **DOT)
    if rows and rows[0][2]:
        axes.axvline(np.mean(rows[0][2]), color=rows[0][1], linewidth=0.8, linestyle=":")
    axes.set_yticks(places, [label for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)


def side_by_side(place: float, count: int, width: float) -> np.ndarray:
    """Where dots $[count]$ of one place lie in a strip about it, so that none hides another."""
    return place + (np.arange(count) - (count - 1) / 2) * width / max(count, 1)


def shades(colour: str, count: int) -> list[str]:
    """Tones of a colour from light to dark, for things that one method has several of."""
    tones = []
    for share in np.linspace(-0.5, 0.5, count):
        end = np.zeros(3) if share > 0 else np.ones(3)
        mixed = (1 - abs(share)) * np.array(to_rgb(colour)) + abs(share) * end
        tones.append(to_hex(mixed))
    return tones


def share_legend(
    figure: Figure, axes: Any, place: LegendPlace = "outside lower center", columns: int = 1
) -> None:
    """One legend beside or below all panels, with the lines and bars of one of them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc=place, ncols=columns, frameon=False)


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """FOLDER/NAME.svg and FOLDER/NAME.png, with no date in them."""
    for kind, metadata in METADATA.items():
        with matplotlib.rc_context(REPRODUCIBLE), atomic_path(folder / f"{name}.{kind}") as path:
            figure.savefig(path, format=kind, metadata=metadata)

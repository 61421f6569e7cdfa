"""Figures of scores between 0 and 1, drawn in percent and in one style with matplotlib."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from canet.report.score import to_percent

MARKERS = "osD^vPX*p"
BACKGROUND_GREY = "0.8"  # colour of lines that are not highlighted
LegendPosition = Literal["outside lower center", "outside right center"]
DOT: dict[str, Any] = {
    "color": "black",
    "markersize": 3.2,
    "alpha": 0.65,
    "markeredgecolor": "white",
    "markeredgewidth": 0.4,
    "zorder": 3,
}


class Style(NamedTuple):
    """Style of a line, and opacity of the band around it; 0 for no band."""

    colour: str
    marker: str = "o"
    dashes: str = "-"
    width: float = 1.4
    band: float = 0.13


def new_figure(rows: int, columns: int, width: float = 5.0, height: float = 3.6) -> Figure:
    """Return a figure for `rows` × `columns` panels of `width` × `height` inches each."""
    return Figure(figsize=(columns * width, rows * height), layout="constrained", dpi=150)


def tidy(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Set title and labels; remove the box and add a faint grid."""
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)


def draw_band(
    axes: Axes, x: Sequence[float], runs: Sequence[Sequence[float]], style: Style, label: str
) -> None:
    """Draw the mean over runs as a line, and one standard deviation as a band.

    `runs` has the scores of all runs at each `x`; an `x` without scores is a gap.
    """
    centre, spread = np.array([_statistics(scores) for scores in runs]).T
    colour, marker = style.colour, style.marker if len(x) < 30 else ""
    line: dict[str, Any] = {"linestyle": style.dashes, "linewidth": style.width, "color": colour}
    axes.plot(x, centre, **line, marker=marker, markersize=4.5, label=label)
    low, high = centre - spread, centre + spread
    if not style.band:
        return
    if len(x) == 1:
        axes.vlines(x, low, high, color=colour, alpha=3 * style.band)
    else:
        axes.fill_between(x, low, high, color=colour, alpha=style.band, linewidth=0)


def draw_bars(
    axes: Axes, groups: Sequence[str], bars: Sequence[tuple[str, str, Sequence[Sequence[float]]]]
) -> None:
    """Draw the mean scores of each group as bars side by side, with a dot for each run.

    Each of `bars` has a label, a colour and, for each group, the scores of all runs.
    """
    centres = np.arange(len(groups))
    width = 0.84 / len(bars)
    for i, (label, colour, scores) in enumerate(bars):
        positions = centres + (i - (len(bars) - 1) / 2) * width
        means = [_statistics(runs)[0] for runs in scores]
        axes.bar(positions, means, width * 0.92, color=colour, alpha=0.85, label=label)
        for x, runs in zip(positions, scores, strict=True):
            points = to_percent(np.array(runs))
            axes.plot(spread_out(x, len(runs), 0.7 * width), points, "o", **DOT)
    axes.set_xticks(centres, groups)
    axes.set_ylim(0, 100)


def draw_rows(axes: Axes, rows: Sequence[tuple[str, str, Sequence[float]]]) -> None:
    """Draw a row for each label, colour and scores: all runs, their mean and standard deviation.

    A dotted line marks the mean of the first row.
    """
    for y, (_, colour, runs) in enumerate(rows):
        if not runs:
            continue
        centre, spread = _statistics(runs)
        error = [[min(spread, centre)], [min(spread, 100 - centre)]]
        axes.errorbar(centre, y, xerr=error, fmt="D", color=colour, markersize=6)
        axes.plot(to_percent(np.array(runs)), spread_out(y, len(runs), 0.5), "o", **DOT)
    if rows and rows[0][2]:
        centre, _ = _statistics(rows[0][2])
        axes.axvline(centre, color=rows[0][1], linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)


def spread_out(centre: float, count: int, width: float) -> np.ndarray:
    """Positions $[count]$ of dots around a centre, so that none hides another."""
    return centre + (np.arange(count) - (count - 1) / 2) * width / max(count, 1)


def shades(colour: str, count: int) -> list[str]:
    """Return `count` tones of a colour from light to dark."""
    tones = []
    for share in np.linspace(-0.5, 0.5, count):
        end = np.zeros(3) if share > 0 else np.ones(3)
        mixed = (1 - abs(share)) * np.array(to_rgb(colour)) + abs(share) * end
        tones.append(to_hex(mixed))
    return tones


def share_legend(
    figure: Figure, axes: Axes, position: LegendPosition = "outside lower center", columns: int = 1
) -> None:
    """Add one legend for all panels, next to or below them, made from the panel `axes`."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc=position, ncols=columns, frameon=False)


def _statistics(scores: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation in percent; NaN and 0 without scores."""
    if not len(scores):
        return np.nan, 0.0
    values = to_percent(np.array(scores))
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0

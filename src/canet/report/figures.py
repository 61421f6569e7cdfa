"""Figures: one style, drawn with matplotlib, written atomically and the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from canet.files import atomic_path

COLOURS = ("#b5533c", "#1f6f8b", "#8a8a8a")
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d00", "#000000", "#999999")
"""Colours that colour-blind readers can tell apart (Okabe and Ito), but for the accent."""
ACCENT = "#d55e00"
MARKERS = "osD^vPX*p"
LegendPlace = Literal["outside lower center", "outside right center"]
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
    """Mean over runs as a line, and one standard deviation about it as a band.

    Args:
        axes: Where to draw.
        x: Places $[n]$.
        runs: Values of each place $[n]$, any number of runs each; a place without one is a gap.
    """
    centre = np.array([np.mean(values) if len(values) else np.nan for values in runs])
    spread = np.array([np.std(values, ddof=1) if len(values) > 1 else 0.0 for values in runs])
    marker = style.marker if len(x) < 30 else ""
    axes.plot(
        x,
        centre,
        style.dashes,
        marker=marker,
        markersize=4.5,
        color=style.colour,
        linewidth=style.width,
        label=label,
    )
    axes.fill_between(
        x, centre - spread, centre + spread, color=style.colour, alpha=style.band, linewidth=0
    )


def draw_bars(
    axes: Any,
    groups: Sequence[str],
    bars: Sequence[tuple[str, str, Sequence[Sequence[float]]]],
) -> None:
    """Bars side by side in each group, with a dot for every run.

    Args:
        axes: Where to draw.
        groups: Name of each group $[g]$.
        bars: Label, colour and values $[g]$ of each bar, any number of runs each.
    """
    places = np.arange(len(groups))
    width = 0.84 / len(bars)
    for i, (label, colour, values) in enumerate(bars):
        at = places + (i - (len(bars) - 1) / 2) * width
        means = [np.mean(runs) if len(runs) else np.nan for runs in values]
        axes.bar(at, means, width * 0.92, color=colour, alpha=0.85, label=label)
        for x, runs in zip(at, values, strict=True):
            axes.plot([x] * len(runs), runs, "o", color="black", markersize=2.2, alpha=0.55)
    axes.set_xticks(places, groups)
    focus(axes, [value for _, _, groups_ in bars for runs in groups_ for value in runs])


def focus(axes: Any, values: Sequence[float]) -> None:
    """Show the range of the values with a margin, so that differences can be seen."""
    finite = [value for value in values if np.isfinite(value)]
    if finite:
        margin = 0.15 * (max(finite) - min(finite)) + 0.5
        axes.set_ylim(max(0.0, min(finite) - 2 * margin), min(100.0, max(finite) + margin))


def draw_matrices(
    figure: Figure, matrices: Sequence[Sequence[np.ndarray]], titles: Sequence[Sequence[str]]
) -> None:
    """Heat maps with one colour scale for all, white at 0.

    Args:
        figure: Where to draw.
        matrices: Rows of matrices, as many in each.
        titles: Of each matrix.
    """
    panels = figure.subplots(len(matrices), len(matrices[0]), squeeze=False)
    limit = float(np.quantile(np.abs(matrices), 0.995))
    for row, some, names in zip(panels, matrices, titles, strict=True):
        for axes, matrix, name in zip(row, some, names, strict=True):
            image = axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit)
            axes.set_title(name, loc="left", fontsize="small")
            axes.set_xticks([])
            axes.set_yticks([])
    figure.colorbar(image, ax=panels, shrink=0.7, extend="both")


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


class DemoLine(NamedTuple):
    """One contestant over several draws of the data: final scores, and OOD scores per epoch."""

    label: str
    id_scores: list[float]
    ood_scores: list[float]
    ood_curves: np.ndarray


def draw_demo(lines: Sequence[DemoLine], path: Path) -> None:
    """In distribution beside under shift, and how the latter moves while training."""
    figure = Figure(figsize=(10, 4), layout="constrained", dpi=150)
    bars, curves = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.2))
    places = np.arange(2)
    for i, (line, colour) in enumerate(zip(lines, COLOURS, strict=True)):
        both = np.array([line.id_scores, line.ood_scores])
        shift = (i - (len(lines) - 1) / 2) * 0.28
        bars.bar(places + shift, both.mean(axis=1), 0.25, color=colour, alpha=0.85)
        bars.plot(places + shift, both, "o", color="black", markersize=3, alpha=0.6)
        for x, value in zip(places + shift, both.mean(axis=1), strict=True):
            bars.annotate(f"{value:.0f}", (x, 3), color="white", ha="center", fontweight="bold")
        epochs = np.arange(1, line.ood_curves.shape[1] + 1)
        centre, spread = line.ood_curves.mean(axis=0), line.ood_curves.std(axis=0)
        curves.plot(epochs, centre, color=colour, label=line.label)
        curves.fill_between(epochs, centre - spread, centre + spread, color=colour, alpha=0.15)
    bars.set_xticks(places, ["in distribution", "under shift"])
    bars.set_ylabel("accuracy %")
    bars.set_ylim(0, 100)
    bars.set_title("Test accuracy at the selected epoch", loc="left")
    curves.set_xlabel("epoch")
    curves.set_title("Under shift, while training", loc="left")
    curves.legend(frameon=False, loc="lower right")
    for axes in (bars, curves):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."))

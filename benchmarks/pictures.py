"""Pictures of measurements: ratios with their targets, and growth on log-log axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import LogLocator

from benchmarks.growth import AXIS_NAMES
from benchmarks.results import Growth, Results
from benchmarks.targets import checks
from canet.methods import BACKBONES, METHODS
from canet.report.figures import MARKERS, new_figure, share_legend, tidy
from canet.util.rendering import save_figure

DEVICES = {"cpu": "CPU", "cuda": "GPU"}
COLUMNS = 3
"""Number of panels in a row."""


def draw_ratios(runs: Sequence[Results], folder: Path, name: str) -> None:
    """Draw the speed-up and memory ratio of each case, with its target."""
    figure = new_figure(1, len(runs), width=6.5, height=4.2)
    colour = METHODS["canet"].colour.light
    for axes, results in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs, strict=True):
        shown = [c for c in checks(results) if c.at_least and c.measured is not None]
        shown.reverse()
        rows = range(len(shown))
        measured = [c.measured or 0.0 for c in shown]
        bounds = [c.bound for c in shown]
        axes.hlines(rows, bounds, measured, color=colour, linewidth=1.2, alpha=0.5)
        axes.plot(bounds, rows, "|", color="black", markersize=11, label="target")
        axes.plot(measured, rows, "o", color=colour, markersize=7, label="measured")
        for row, check, value in zip(rows, shown, measured, strict=True):
            axes.annotate(
                f"{value:.3g}×",
                (max(value, check.bound), row),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
            )
        labels = [c.name.replace(": plain ÷ CaNet, epoch", "") for c in shown]
        labels = [label.replace(": plain ÷ CaNet, peak", "\npeak") for label in labels]
        axes.set_yticks(list(rows), labels)
        axes.set_xscale("log")
        axes.set_xlim(min([1.0, *measured]), 1.6 * max([10.0, *measured]))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        hardware = results.hardware.get("gpu") or results.hardware.get("cpu") or ""
        tidy(axes, f"{DEVICES[results.device]}: {hardware}", "plain ÷ CaNet, log scale")
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x", alpha=0.25)
    share_legend(figure, axes, columns=2)
    save_figure(figure, folder, name)


def draw_growth(results: Results, folder: Path, name: str) -> None:
    """Draw the milliseconds per epoch along each axis, with the fitted slopes in the title."""
    lines = results.growth()
    axis_names = list(dict.fromkeys(line.axis for line in lines))
    columns = min(COLUMNS, len(axis_names))
    rows = -(-len(axis_names) // columns)
    figure = new_figure(rows, columns, width=3.6, height=3.0)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, axis in zip(panels.flat, axis_names, strict=False):
        _draw_axis(axes, [line for line in lines if line.axis == axis])
    for axes in panels.flat[len(axis_names) :]:
        axes.set_axis_off()
    for axes in panels[:, 0]:
        axes.set_ylabel("ms per epoch")
    figure.set_layout_engine("constrained", wspace=0.06, hspace=0.06)
    share_legend(figure, panels[0, 0], columns=len(BACKBONES))
    save_figure(figure, folder, name)


def _draw_axis(axes: Any, lines: Sequence[Growth]) -> None:
    """Draw the lines of all backbones along one axis."""
    for marker, line in zip(MARKERS, lines, strict=False):
        backbone = BACKBONES[line.backbone]
        axes.loglog(
            line.values,
            [1000 * seconds for seconds in line.seconds],
            marker=marker,
            color=backbone.colour.light,
            label=backbone.label,
        )
    values = max((line.values for line in lines), key=len)
    axes.set_xticks(values, [short_number(value) for value in values])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    slopes = ", ".join(f"{BACKBONES[li.backbone].label} {li.time_slope:.2f}" for li in lines)
    tidy(axes, f"slopes: {slopes}", AXIS_NAMES[lines[0].axis])


def short_number(value: int) -> str:
    """`25,000` → `25 k`, `1,600,000` → `1.6 M`."""
    if value < 10_000:
        return f"{value:,}"
    return f"{value / 1e3:g} k" if value < 1_000_000 else f"{value / 1e6:g} M"

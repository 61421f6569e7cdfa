"""Pictures of a run's measurements: ratios beside their bounds, and growth on two log axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.ticker import LogLocator

from canet.bench.growth import AXIS_NAMES
from canet.bench.results import Results
from canet.bench.targets import checks
from canet.report.figures import ACCENT, MARKERS, PALETTE, new_figure, save_figure, tidy

DEVICES = {"cpu": "CPU", "cuda": "GPU"}


def draw_ratios(runs: Sequence[Results], folder: Path, name: str) -> None:
    """How many times faster, and leaner, our engine is: a bar each, a line at what must hold."""
    figure = new_figure(1, len(runs), width=6.5, height=4.2)
    for axes, results in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs, strict=True):
        shown = [c for c in checks(results) if c.at_least and c.measured is not None]
        shown.reverse()
        places = range(len(shown))
        axes.barh(places, [c.measured or 0.0 for c in shown], color=PALETTE[0], alpha=0.85)
        for place, check in zip(places, shown, strict=True):
            text = f" {check.measured or 0.0:.3g}×"
            axes.annotate(text, (max(check.measured or 0.0, check.bound), place), va="center")
            axes.plot([check.bound] * 2, [place - 0.45, place + 0.45], color=ACCENT, linewidth=2)
        labels = [c.name.replace(": plain ÷ CaNet, epoch", "") for c in shown]
        labels = [label.replace(": plain ÷ CaNet, peak", "\npeak") for label in labels]
        axes.set_yticks(list(places), labels, fontsize="small")
        axes.set_xscale("log")
        axes.margins(x=0.12)
        axes.set_xlim(left=min([0.9, *(0.9 * (c.measured or 1.0) for c in shown)]))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.axvline(1.0, color="black", linewidth=0.8)
        hardware = results.hardware.get("gpu") or results.hardware.get("cpu") or ""
        title = f"{DEVICES[results.device]}: {hardware}"
        tidy(axes, title, "plain ÷ CaNet (bar), what must hold (line)")
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x", alpha=0.25)
    save_figure(figure, folder, name)


def draw_growth(results: Results, folder: Path, name: str) -> None:
    """Milliseconds per epoch along each axis, with the fitted slopes in the legend."""
    lines = results.growth()
    axis_names = list(dict.fromkeys(line.axis for line in lines))
    figure = new_figure(1, len(axis_names), width=3.2, height=3.2)
    panels = figure.subplots(1, len(axis_names), squeeze=False, sharey=True)[0]
    for axes, axis in zip(panels, axis_names, strict=True):
        for i, line in enumerate(line for line in lines if line.axis == axis):
            axes.loglog(
                line.values,
                [1000 * seconds for seconds in line.seconds],
                marker=MARKERS[i],
                color=PALETTE[i],
                label=f"{line.backbone.upper()}, slope {line.time_slope:.2f}",
            )
        values = max((line.values for line in lines if line.axis == axis), key=len)
        axes.set_xticks(values, [f"{value:,}" for value in values], rotation=30, fontsize="small")
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:,g}")
        tidy(axes, "", AXIS_NAMES[axis], "ms per epoch" if axes is panels[0] else "")
        axes.legend(frameon=False, fontsize="small")
    save_figure(figure, folder, name)

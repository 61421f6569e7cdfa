"""Learning curves of several contenders as one chart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from canet.report.comparison import Contender
from canet.report.score import to_percent
from canet.store.summary import OOD
from canet.util.rendering import PAGE_STYLE, inline_svg

MAX_POINTS = 80
WARM_UP = 0.1  # share of first epochs that the range of the y axis ignores
OWN = "#000004"  # placeholder for the colour of a contender


@dataclass(frozen=True)
class Chart:
    """A chart of mean scores in percent by epoch, and what its script needs to read it."""

    width: ClassVar[int] = 280
    height: ClassVar[int] = 190
    left: ClassVar[int] = 30
    right: ClassVar[int] = 274
    top: ClassVar[int] = 8
    bottom: ClassVar[int] = 168

    svg: Markup
    epochs: int
    lowest: float
    highest: float
    last: dict[str, float]  # label → score at the last epoch; the lines in front are last
    highlighted: list[str]  # labels of the lines that are not grey
    has_bands: bool


def read_curves(contender: Contender) -> dict[str, list[np.ndarray]]:
    """Curves of the runs that recorded them: validation, and the mean over the OOD sets."""
    curves: dict[str, list[np.ndarray]] = {"under shift": [], "validation": []}
    for run in contender.runs:
        if not run.folder.has_metrics:
            continue
        history = run.folder.read_metrics()
        shifted = [curve for name, curve in history.items() if name.startswith(OOD)]
        if shifted:
            curves["under shift"].append(np.mean(np.array(shifted, dtype=float), axis=0))
        if history.get("valid"):
            curves["validation"].append(np.array(history["valid"], dtype=float))
    return curves


@rc_context(PAGE_STYLE)
def draw_chart(
    curves: Sequence[tuple[Contender, list[np.ndarray]]], background: Collection[str] = ()
) -> Chart | None:
    """The mean curve of each contender over its runs; None if no run has curves.

    Contenders with a label in `background` are grey and below the others; their bands are hidden
    until the reader selects them.
    """
    lines = [(contender, *_statistics(of_runs)) for contender, of_runs in curves if of_runs]
    lines.sort(key=lambda line: line[0].label not in background)
    values = [centre[int(WARM_UP * len(centre)) :] for _, centre, _ in lines]
    finite = [float(x) for part in values for x in part if np.isfinite(x)]
    epochs = max((len(centre) for _, centre, _ in lines), default=0)
    if not finite or epochs < 2:
        return None
    ticks = nice_ticks(min(finite), max(finite))
    figure = Figure(figsize=(Chart.width / 72, Chart.height / 72))
    axes = figure.add_axes(
        (
            Chart.left / Chart.width,
            1 - Chart.bottom / Chart.height,
            (Chart.right - Chart.left) / Chart.width,
            (Chart.bottom - Chart.top) / Chart.height,
        )
    )
    for i, (_, centre, deviation) in enumerate(lines):
        epoch = np.unique(np.linspace(0, len(centre) - 1, MAX_POINTS).round().astype(int))
        epoch = epoch[np.isfinite(centre[epoch])]
        means, spread = centre[epoch], deviation[epoch]
        if deviation.any():
            band = axes.fill_between(epoch + 1, means - spread, means + spread, color=OWN, lw=0)
            band.set_gid(f"band-{i}")
        axes.plot(epoch + 1, means, color=OWN, linewidth=1.4, gid=f"line-{i}")
    axes.set(xlim=(1, epochs), ylim=(ticks[0], ticks[-1]), yticks=ticks)
    axes.set_yticklabels([f"{tick:g}" for tick in ticks])
    middle = (1 + epochs) // 2
    axes.set_xticks([1, middle, epochs], ["1", str(middle), f"epoch {epochs}"])
    axes.get_xticklabels()[-1].set_horizontalalignment("right")
    axes.grid(axis="x", visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=10)
    svg = inline_svg(figure, {OWN: "of"})
    for i, (contender, _, _) in enumerate(lines):
        grey = " background" if contender.label in background else ""
        marks = f'{contender.css_class}{grey}" data-label="{escape(contender.label)}">'
        for kind in ("line", "band"):
            svg = svg.replace(f'<g id="{kind}-{i}">', Markup(f'<g class="{kind} {marks}'))
    return Chart(
        svg,
        epochs,
        lowest=ticks[0],
        highest=ticks[-1],
        last={contender.label: float(centre[-1]) for contender, centre, _ in lines},
        highlighted=[c.label for c, _, _ in lines if c.label not in background],
        has_bands=any(deviation.any() for _, _, deviation in lines),
    )


def nice_ticks(low: float, high: float, max_intervals: int = 5) -> list[float]:
    """Round numbers that enclose `low` and `high`."""
    locator = MaxNLocator(max_intervals, steps=[1, 2, 2.5, 5, 10])
    return [round(float(tick), 6) for tick in locator.tick_values(low, max(high, low + 0.1))]


def _statistics(curves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sample standard deviation in percent of each epoch over its runs."""
    longest = max(map(len, curves))
    padded = [np.pad(c, (0, longest - len(c)), constant_values=np.nan) for c in curves]
    stack = np.ma.masked_invalid(to_percent(np.stack(padded)))
    return stack.mean(axis=0).filled(np.nan), stack.std(axis=0, ddof=1).filled(0.0)

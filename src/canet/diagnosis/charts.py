"""The charts of a diagnosis: matplotlib figures as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from canet.diagnosis.risk import Risk
from canet.diagnosis.sections.confidence import Confidence, Reliability
from canet.util.rendering import MUTED, PAGE_STYLE, inline_svg

# Placeholder colours, as in `canet.util.rendering`.
NEW, VALID, WARN = "#000004", "#000005", "#000006"
VARIABLES = {NEW: "new", VALID: "valid", WARN: "warn"}
MAX_LENGTH = 24  # characters of a label
DOT = 5  # diameter in points
DISTANCES = (6, 16, 28, 40, 56, 72)  # from a dot to its label, in points
SIDES = [(1, 0, "left"), (-1, 0, "right")]  # direction from the dot, and alignment of the label
SIDES += [(0, y, side) for side in ("left", "right", "center") for y in (1, -1)]


@rc_context(PAGE_STYLE)
def risk_map(risks: Sequence[Risk]) -> Markup:
    """Reliance and shift of each feature block."""
    figure, axes = _new_chart("reliance, %", "shift (0: none, 1: complete)")
    places = {one.name: (one.reliance.value, one.shift) for one in risks if one.column}
    for one in risks:
        if one.column:
            colour = WARN if one.is_at_risk else NEW
            axes.plot(*places[one.name], "o", color=colour, markersize=DOT)
    values = [value for value, _ in places.values()]
    low, high = min([*values, 0.0]), max([*values, 0.05])
    axes.set(xlim=(low - 0.04 * (high - low), high + 0.1 * (high - low)), ylim=(-0.04, 1.04))
    most = max(places, key=lambda name: places[name][0], default="")
    _label(figure, axes, places, {most, *list(places)[:1]})
    return inline_svg(figure, VARIABLES)


def _label(
    figure: Figure, axes: Any, places: dict[str, tuple[float, float]], important: set[str]
) -> None:
    """Write names next to their dots, unless they would cover a dot or another name.

    If there is no room, an important name is written farther away, with a line to its dot.
    """
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    frame, radius = axes.get_window_extent(), DOT / 2 * figure.dpi / 72
    dots = axes.transData.transform(list(places.values()))
    taken = [Bbox([dot - radius, dot + radius]) for dot in dots]
    for name, place in places.items():
        text = name if len(name) <= MAX_LENGTH else f"{name[: MAX_LENGTH - 1]}…"
        distances = DISTANCES if name in important else DISTANCES[:1]
        for distance, (x, y, side) in product(distances, SIDES):
            options: Any = {"textcoords": "offset points", "ha": side, "va": "center"}
            if distance > DISTANCES[0]:
                options["arrowprops"] = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.5}
            label = axes.annotate(text, place, (x * distance, y * (distance + 4)), **options)
            label.update_positions(renderer)
            box = Text.get_window_extent(label, renderer)  # without the line
            inside = bool((box.min >= frame.min).all() and (box.max <= frame.max).all())
            if inside and not box.count_overlaps(taken):
                taken.append(box)
                break
            label.remove()


@rc_context(PAGE_STYLE)
def reliability_diagram(found: Confidence) -> Markup:
    """Reliability diagram: accuracy by confidence; on the diagonal both are equal."""
    figure, axes = _new_chart("confidence, %", "accuracy, %")
    axes.plot([0, 1], [0, 1], "--", color=MUTED, linewidth=0.8)
    for colour, part in _graphs(found):
        x, y = [b.confidence for b in part.bins], [b.accuracy for b in part.bins]
        values = [e.value for e in y]
        errors = [[e.value - e.low for e in y], [e.high - e.value for e in y]]
        axes.errorbar(x, values, errors, color=colour, marker="o", markersize=3, elinewidth=0.6)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    return inline_svg(figure, VARIABLES)


@rc_context(PAGE_STYLE)
def abstention_curve(found: Confidence) -> Markup:
    """Accuracy on the most confident nodes, by their share of all nodes."""
    figure, axes = _new_chart("predictions kept, the most confident first, %", "accuracy, %")
    for colour, part in _graphs(found):
        x, y = list(part.abstention), list(part.abstention.values())
        axes.plot(x, [e.value for e in y], color=colour)
        low, high = [e.low for e in y], [e.high for e in y]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlim(0, 1.02)
    return inline_svg(figure, VARIABLES)


def _graphs(found: Confidence) -> list[tuple[str, Reliability]]:
    return [(VALID, found.valid), *([(NEW, found.new)] if found.new is not None else [])]


def _new_chart(x: str, y: str) -> tuple[Figure, Any]:
    """An empty chart. If an axis label ends in %, shares are shown in percent."""
    figure = Figure(figsize=(3.2, 2.4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    for axis, label in ((axes.xaxis, x), (axes.yaxis, y)):
        if label.endswith("%"):
            axis.set_major_formatter(lambda share, _: f"{100 * share:.3g}")
    return figure, axes

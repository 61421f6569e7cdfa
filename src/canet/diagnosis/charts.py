"""The charts of a diagnosis: matplotlib figures as inline SVG."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from canet.diagnosis.columns import Distribution
from canet.diagnosis.risk import Risk
from canet.diagnosis.sections.confidence import Confidence
from canet.errors import printable
from canet.scoring.intervals import Estimate
from canet.util.rendering import ACCENT, INK, MUTED, PAGE_STYLE, WARN, amount, inline_svg

OLD, NEW = MUTED, ACCENT  # colours of the training graph and of the new graph
MAX_LENGTH = 30  # characters of a label
PANELS = 3  # distributions in a row


@rc_context(PAGE_STYLE)
def risks(found: Sequence[Risk]) -> Markup:
    """Reliance and shift of each feature block, side by side; those at risk are red."""
    figure, (left, right) = _new_figure(1, 2, height=0.6 + 0.22 * len(found))
    colours = [WARN if one.is_at_risk else NEW for one in found]
    values, errors = _with_errors([one.reliance for one in found])
    places = np.arange(len(found))
    lines = {"elinewidth": 0.8, "ecolor": INK, "capsize": 2.5, "capthick": 0.8}
    left.barh(places, values, color=colours, xerr=errors, error_kw=lines)
    right.barh(places, [one.shift for one in found], color=colours)
    left.set(title="reliance, %", yticks=places, yticklabels=[_short(one.name) for one in found])
    right.set(title="shift (0: none, 1: complete; red: at risk)", yticks=[], xlim=(0, 1))
    for axes in (left, right):
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
    return _finish(figure, percent=[left.xaxis])


@rc_context(PAGE_STYLE)
def confidence(found: Confidence) -> Markup:
    """Accuracy by confidence, and accuracy of the most confident nodes by their share."""
    figure, (left, right) = _new_figure(1, 2)
    left.plot([0, 1], [0, 1], "--", color=MUTED, linewidth=0.8)
    graphs = [(OLD, "validation nodes", found.valid), (NEW, "new graph", found.new)]
    for colour, label, part in graphs:
        if part is None:
            continue
        y, errors = _with_errors([b.accuracy for b in part.bins])
        style: dict[str, Any] = {"marker": "o", "markersize": 3, "elinewidth": 0.6, "label": label}
        style |= {"capsize": 2, "capthick": 0.6}
        left.errorbar([b.confidence for b in part.bins], y, errors, color=colour, **style)
        kept, accuracy = list(part.abstention), list(part.abstention.values())
        right.plot(kept, [one.value for one in accuracy], color=colour)
        low, high = [one.low for one in accuracy], [one.high for one in accuracy]
        right.fill_between(kept, low, high, color=colour, alpha=0.15, linewidth=0)
    left.set(title="Accuracy by confidence", xlabel="confidence, %", ylabel="accuracy, %")
    right.set(title="Accuracy if only confident predictions are kept", ylabel="accuracy, %")
    right.set_xlabel("predictions kept, the most confident first, %")
    left.set(xlim=(0, 1.02), ylim=(0, 1.02))
    return _finish(figure, percent=[left.xaxis, left.yaxis, right.xaxis, right.yaxis])


@rc_context(PAGE_STYLE)
def distributions(found: Sequence[Distribution]) -> Markup:
    """The distributions of columns in training and on the new graph."""
    rows = -(-len(found) // PANELS)
    figure, panels = _new_figure(rows, PANELS, height=0.3 + 1.6 * rows)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    for axes, one in zip(panels, found, strict=False):
        places = np.arange(len(one.bars))
        axes.bar(places - 0.2, [b.before for b in one.bars], 0.38, color=OLD, label="training")
        axes.bar(places + 0.2, [b.after for b in one.bars], 0.38, color=NEW, label="new graph")
        ends = one.bars[0].low, one.bars[-1].high
        axes.set_xticks([0, len(places) - 1], [amount(end, one.is_date) for end in ends])
        axes.set_title(_short(one.name))
        axes.grid(axis="x", visible=False)
    panels[0].set_ylabel("share of the nodes, %")
    return _finish(figure, percent=[axes.yaxis for axes in panels])


def _new_figure(rows: int, columns: int, height: float = 2.8) -> tuple[Figure, Any]:
    """An empty figure, and its panels in a flat array."""
    figure = Figure(figsize=(10, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).ravel()


def _finish(figure: Figure, percent: Sequence[Any]) -> Markup:
    """Show the shares of some axes in percent, and add a legend if a line or bar has a label."""
    for axis in percent:
        axis.set_major_formatter(lambda share, _: f"{100 * share:.3g}")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return inline_svg(figure)


def _with_errors(estimates: Sequence[Estimate]) -> tuple[list[float], np.ndarray]:
    """Values, and the lengths of the error bars below and above them."""
    values = [one.value for one in estimates]
    return values, np.array([[one.value - one.low, one.high - one.value] for one in estimates]).T


def _short(name: str) -> str:
    name = f"column {name}" if name.isdigit() else printable(name)
    return name if len(name) <= MAX_LENGTH else f"{name[: MAX_LENGTH - 11]}…{name[-10:]}"

"""Learning curves of several contenders as one figure."""

from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from canet.report.comparison import Comparison, Contender
from canet.report.figures import Style, draw_band, tidy
from canet.report.labels import backbone_label
from canet.report.score import to_percent
from canet.store.summary import OOD
from canet.util.rendering import PAGE_STYLE

MAX_POINTS = 80
MAX_BANDS = 6  # a panel with more lines than this has no bands
WARM_UP = 0.1  # share of first epochs that the range of the y axis ignores
Curves = list[np.ndarray]  # the scores of each run by epoch


def read_curves(contender: Contender) -> dict[str, Curves]:
    """Curves of the runs that recorded them: validation, and the mean over the OOD sets."""
    curves: dict[str, Curves] = {"under shift": [], "validation": []}
    for run in contender.runs:
        if not run.folder.has_metrics:
            continue
        history = run.folder.read_metrics()
        shifted = [curve for name, curve in history.items() if name.startswith(OOD)]
        if shifted:
            curves["under shift"].append(np.mean(np.array(shifted, dtype=float), axis=0))
        if history.get("valid"):
            curves["validation"].append(np.array(history["valid"], dtype=float))
    return {
        name: [c for c in found if len(c) > 1 and np.isfinite(_late(c)).any()]
        for name, found in curves.items()
    }


@rc_context(PAGE_STYLE)
def curve_figure(comparison: Comparison, legend: Sequence[Contender]) -> Figure | None:
    """Mean scores by epoch: a panel for each backbone and kind of scores; None without curves.

    `legend` has one contender for each label.
    """
    panels = []
    for backbone in comparison.backbones:
        found = [(c, read_curves(c)) for c in comparison.of(backbone)[::-1]]
        for name in ("under shift", "validation"):
            if lines := [(c, curves[name]) for c, curves in found if curves[name]]:
                panels.append((f"{backbone_label(backbone)}, {name}", lines))
    if not panels:
        return None
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(10, 0.5 + 2.3 * rows), layout="constrained")
    for i, (title, lines) in enumerate(panels):
        axes = figure.add_subplot(rows, 2, i + 1)
        for contender, curves in lines:
            _draw(axes, contender, curves, len(lines) <= MAX_BANDS and len(curves) > 1)
        late = [_late(curve) for _, curves in lines for curve in curves]
        scores = to_percent(np.concatenate(late))
        low, high = np.nanmin(scores), np.nanmax(scores)
        margin = 0.05 * max(high - low, 0.1)
        axes.set_ylim(low - margin, high + margin)
        axes.set_xlim(1, None)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        tidy(axes, title, "epoch", "score in %")
    handles = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    shown = [handles[contender.label] for contender in legend if contender.label in handles]
    figure.legend(handles=shown, loc="outside lower center", ncols=5, frameon=False)
    return figure


def _draw(axes: Axes, contender: Contender, curves: Curves, has_band: bool) -> None:
    """The mean over the runs that reached an epoch, and a band of one standard deviation."""
    last = max(map(len, curves)) - 1
    epochs = np.unique(np.linspace(0, last, MAX_POINTS).round().astype(int))
    runs = [[c[e] for c in curves if e < len(c) and np.isfinite(c[e])] for e in epochs]
    dashes, band = "-" if contender.is_ranked else "--", 0.13 if has_band else 0.0
    style = Style(contender.colour.light, "", dashes, band=band)
    draw_band(axes, (epochs + 1).tolist(), runs, style, contender.label)


def _late(curve: np.ndarray) -> np.ndarray:
    """A curve without its first epochs, which would flatten the rest."""
    return curve[int(WARM_UP * len(curve)) :]

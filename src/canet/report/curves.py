"""Learning curves of several contenders as one figure."""

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
HEIGHT = 2.8  # of a panel, in inches
LABEL_STEP = 0.075  # least distance between two labels, as a share of the height of a panel
WARM_UP = 0.1  # share of first epochs that the range of the y axis may ignore
MAX_STRETCH = 3  # how many times larger the range may be with these epochs
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
def curve_figure(comparison: Comparison) -> Figure | None:
    """Mean scores by epoch: a panel for each backbone and kind of scores; None without curves."""
    panels = []
    for backbone in comparison.backbones:
        found = [(c, read_curves(c)) for c in comparison.of(backbone)[::-1]]
        for name in ("under shift", "validation"):
            if lines := [(c, curves[name]) for c, curves in found if curves[name]]:
                panels.append((f"{backbone_label(backbone)}, {name}", lines))
    if not panels:
        return None
    columns = 2 - len(panels) % 2  # so that the panels fill the width
    rows = len(panels) // columns
    figure = Figure(figsize=(10, HEIGHT * rows), layout="constrained")
    for i, (title, lines) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, i + 1)
        for contender, curves in lines:
            _draw(axes, contender, curves, len(lines) <= MAX_BANDS and len(curves) > 1)
        every = [curve for _, curves in lines for curve in curves]
        late, whole = (
            to_percent(np.concatenate(some)) for some in ([_late(curve) for curve in every], every)
        )
        scores = whole if np.ptp(whole) <= MAX_STRETCH * np.ptp(late) else late
        low, high = np.nanmin(scores), np.nanmax(scores)
        margin = 0.05 * max(high - low, 0.1)
        axes.set_ylim(low - margin, high + margin)
        axes.set_xlim(1, max(map(len, every)))
        _label_ends(axes)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        tidy(axes, title, "epoch", "score in %")
    return figure


def _draw(axes: Axes, contender: Contender, curves: Curves, has_band: bool) -> None:
    """The mean over the runs that reached an epoch, and a band of one standard deviation."""
    last = max(map(len, curves)) - 1
    epochs = np.unique(np.linspace(0, last, MAX_POINTS).round().astype(int))
    runs = [[c[e] for c in curves if e < len(c) and np.isfinite(c[e])] for e in epochs]
    dashes, band = "-" if contender.is_ranked else "--", 0.13 if has_band else 0.0
    style = Style(contender.colour.light, "", dashes, band=band)
    draw_band(axes, (epochs + 1).tolist(), runs, style, contender.label)


def _label_ends(axes: Axes) -> None:
    """Write the label of each line to the right of its last point, without overlaps."""
    low, high = axes.get_ylim()
    ends = np.array([np.asarray(line.get_ydata())[-1] for line in axes.lines]).clip(low, high)
    steps = LABEL_STEP * (high - low) * np.arange(len(ends))
    places = np.maximum.accumulate(np.sort(ends) - steps) + steps
    places = np.minimum(places, high - steps[::-1])
    for place, number in zip(places, np.argsort(ends), strict=True):
        line, across = axes.lines[number], axes.get_yaxis_transform()
        label = str(line.get_label())
        axes.text(1.01, place, label, transform=across, color=line.get_color(), va="center")


def _late(curve: np.ndarray) -> np.ndarray:
    """A curve without its first epochs, which would flatten the rest."""
    return curve[int(WARM_UP * len(curve)) :]

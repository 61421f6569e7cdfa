"""Learning curves of several contenders as one chart in SVG coordinates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from matplotlib.ticker import MaxNLocator

from canet.report.comparison import Contender
from canet.report.score import percent
from canet.store.summary import OOD

MAX_POINTS = 80
WARM_UP = 0.1  # share of first epochs that the range of the y axis ignores


@dataclass(frozen=True)
class Line:
    """The curve of one contender: `points` of the mean, `band` of one standard deviation.

    Lines that are not highlighted are grey and have no band until the reader selects them.
    """

    contender: Contender
    points: str
    band: str
    last: float
    is_highlighted: bool


@dataclass(frozen=True)
class Chart:
    """Lines with their axes, in percent: ticks are (position, text), y is `lowest` to `highest`."""

    width: ClassVar[int] = 280
    height: ClassVar[int] = 190
    left: ClassVar[int] = 30
    right: ClassVar[int] = 274
    top: ClassVar[int] = 8
    bottom: ClassVar[int] = 168

    lines: list[Line]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    epochs: int
    lowest: float
    highest: float


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


def draw_chart(
    curves: Sequence[tuple[Contender, list[np.ndarray]]], background: Collection[str] = ()
) -> Chart | None:
    """The mean curve of each contender over its runs; None if no run has curves.

    Contenders with a label in `background` are grey and below the others.
    """
    stacks = [(contender, _statistics(of_runs)) for contender, of_runs in curves if of_runs]
    if not stacks:
        return None
    epochs = max(len(centre) for _, (centre, _) in stacks)
    values = np.concatenate([centre[int(WARM_UP * len(centre)) :] for _, (centre, _) in stacks])
    values = values[np.isfinite(values)]
    if not values.size or epochs < 2:
        return None
    ticks = nice_ticks(float(values.min()), float(values.max()))
    low, high = ticks[0], ticks[-1]

    def x(epoch: Any) -> Any:
        return np.interp(epoch, [1, epochs], [Chart.left, Chart.right])

    def y(score: Any) -> Any:
        return np.interp(score, [low, high], [Chart.bottom, Chart.top])

    lines = []
    for contender, (centre, deviation) in stacks:
        epoch = np.unique(np.linspace(0, len(centre) - 1, MAX_POINTS).round().astype(int))
        epoch = epoch[np.isfinite(centre[epoch])]
        position, means, spread = x(epoch + 1), centre[epoch], deviation[epoch]
        upper, lower = _points(position, y(means + spread)), _points(position, y(means - spread))
        lines.append(
            Line(
                contender,
                points=" ".join(_points(position, y(means))),
                band=" ".join(upper + lower[::-1]) if deviation.any() else "",
                last=float(centre[-1]),
                is_highlighted=contender.label not in background,
            )
        )
    lines.sort(key=lambda line: line.is_highlighted)
    return Chart(
        lines,
        x_ticks=[(x(epoch), str(epoch)) for epoch in (1, (1 + epochs) // 2, epochs)],
        y_ticks=[(y(tick), f"{tick:g}") for tick in ticks],
        epochs=epochs,
        lowest=low,
        highest=high,
    )


def nice_ticks(low: float, high: float, max_intervals: int = 5) -> list[float]:
    """Round numbers that enclose `low` and `high`."""
    locator = MaxNLocator(max_intervals, steps=[1, 2, 2.5, 5, 10])
    return [round(float(tick), 6) for tick in locator.tick_values(low, max(high, low + 0.1))]


def _statistics(curves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sample standard deviation in percent of each epoch over its runs."""
    longest = max(map(len, curves))
    padded = [np.pad(c, (0, longest - len(c)), constant_values=np.nan) for c in curves]
    stack = np.ma.masked_invalid(percent(np.stack(padded)))
    return stack.mean(axis=0).filled(np.nan), stack.std(axis=0, ddof=1).filled(0.0)


def _points(x: np.ndarray, y: np.ndarray) -> list[str]:
    return [f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)]

"""Learning curves of several contenders → one small chart in SVG coordinates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from matplotlib.ticker import MaxNLocator

from canet.report.comparison import Contender
from canet.store.summary import OOD

MAX_POINTS = 80
WARM_UP = 0.1  # the share of epochs whose low scores do not set the scale


@dataclass(frozen=True)
class Line:
    """One contender's curve: `points` of the mean, `band` around it by one standard deviation.

    Of many lines, few are `in_focus`: the others are grey and without band until asked for.
    """

    contender: Contender
    points: str
    band: str
    last: float
    in_focus: bool


@dataclass(frozen=True)
class Chart:
    """Lines with their axes: ticks are (position, text), scores go from `lowest` to `highest`."""

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
    """Curves of the runs that recorded them: of validation, and the mean over the OOD sets."""
    curves: dict[str, list[np.ndarray]] = {"under shift": [], "validation": []}
    for place in (run.place for run in contender.runs if run.place.has_metrics):
        history = place.read_metrics()
        shifted = [curve for name, curve in history.items() if name.startswith(OOD)]
        if shifted:
            curves["under shift"].append(np.mean(np.array(shifted, dtype=float), axis=0))
        if history.get("valid"):
            curves["validation"].append(np.array(history["valid"], dtype=float))
    return curves


def draw_chart(
    curves: Sequence[tuple[Contender, list[np.ndarray]]], quiet: Collection[str] = ()
) -> Chart | None:
    """The mean curve of each contender over all its runs; None where no run recorded it.

    Those whose label is `quiet` are drawn first, below the others.
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
        places, means, spread = x(epoch + 1), centre[epoch], deviation[epoch]
        upper, lower = _points(places, y(means + spread)), _points(places, y(means - spread))
        lines.append(
            Line(
                contender,
                points=" ".join(_points(places, y(means))),
                band=" ".join(upper + lower[::-1]) if deviation.any() else "",
                last=float(centre[-1]),
                in_focus=contender.label not in quiet,
            )
        )
    lines.sort(key=lambda line: line.in_focus)
    return Chart(
        lines,
        x_ticks=[(x(epoch), str(epoch)) for epoch in (1, (1 + epochs) // 2, epochs)],
        y_ticks=[(y(tick), f"{tick:g}") for tick in ticks],
        epochs=epochs,
        lowest=low,
        highest=high,
    )


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers, at most one more than `most`, that enclose `low` and `high`."""
    locator = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])
    return [round(float(tick), 6) for tick in locator.tick_values(low, max(high, low + 0.1))]


def _statistics(curves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a sample at each epoch, over the runs that reached it."""
    longest = max(map(len, curves))
    padded = [np.pad(c, (0, longest - len(c)), constant_values=np.nan) for c in curves]
    stack = np.ma.masked_invalid(np.stack(padded))
    return stack.mean(axis=0).filled(np.nan), stack.std(axis=0, ddof=1).filled(0.0)


def _points(x: np.ndarray, y: np.ndarray) -> list[str]:
    return [f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)]

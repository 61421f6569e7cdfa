"""Learning curves of several contenders → one small chart in SVG coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from canet.report.comparison import Contender
from canet.report.results import FinishedRun
from canet.store.summary import OOD

MOST_POINTS = 80
WARM_UP = 0.1  # the share of epochs whose low scores do not set the scale

History = dict[str, list[float]]
Curve = Callable[[History], np.ndarray | None]


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


class Histories:
    """Reads each run's metrics once, however many charts are drawn from them.

    Runs from an archive may have none.
    """

    def __init__(self) -> None:
        self._read: dict[str, History] = {}

    def of(self, run: FinishedRun) -> History:
        place = run.place
        key = str(place.path)
        if key not in self._read:
            self._read[key] = place.read_metrics() if place.has_metrics else {}
        return self._read[key]


def validation(history: History) -> np.ndarray | None:
    return np.array(history["valid"], dtype=float) if history.get("valid") else None


def under_shift(history: History) -> np.ndarray | None:
    """Mean over the OOD sets, where a run recorded them."""
    curves = [curve for name, curve in history.items() if name.startswith(OOD)]
    return np.mean(np.array(curves, dtype=float), axis=0) if curves else None


def draw_chart(
    contenders: Sequence[Contender],
    curve: Curve,
    histories: Histories,
    quiet: Collection[str] = (),
) -> Chart | None:
    """The mean curve of each contender over all its runs; None where no run recorded it.

    Those whose label is `quiet` are drawn first, below the others.
    """
    stacks = []
    for contender in contenders:
        found = [curve(histories.of(run)) for run in contender.runs]
        curves = [values for values in found if values is not None]
        if curves:
            stacks.append((contender, _statistics(curves)))
    if not stacks:
        return None
    epochs = max(len(centre) for _, (centre, _) in stacks)
    settled = [centre[int(WARM_UP * len(centre)) :] for _, (centre, _) in stacks]
    values = np.concatenate(settled)
    values = values[np.isfinite(values)]
    if not values.size or epochs < 2:
        return None
    ticks = nice_ticks(float(values.min()), float(values.max()))
    low, high = ticks[0], ticks[-1]

    def x(epoch: float) -> float:
        return Chart.left + (Chart.right - Chart.left) * (epoch - 1) / (epochs - 1)

    def y(score: float) -> float:
        share = (min(max(score, low), high) - low) / (high - low)
        return Chart.bottom - (Chart.bottom - Chart.top) * share

    lines = []
    for contender, (centre, deviation) in stacks:
        epoch = np.unique(np.linspace(0, len(centre) - 1, MOST_POINTS).round().astype(int))
        epoch = epoch[np.isfinite(centre[epoch])]
        upper = [(x(i + 1), y(centre[i] + deviation[i])) for i in epoch]
        lower = [(x(i + 1), y(centre[i] - deviation[i])) for i in epoch[::-1]]
        lines.append(
            Line(
                contender,
                points=_points([(x(i + 1), y(centre[i])) for i in epoch]),
                band=_points(upper + lower) if deviation.any() else "",
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
    raw = max(high - low, 0.1) / (most - 1)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(s * magnitude for s in (1, 2, 2.5, 5, 10) if s * magnitude >= raw - 1e-9)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 6) for i in range(first, max(last, first + 1) + 1)]


def _statistics(curves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a sample at each epoch, over the runs that reached it."""
    longest = max(map(len, curves))
    padded = [np.pad(c, (0, longest - len(c)), constant_values=np.nan) for c in curves]
    stack = np.ma.masked_invalid(np.stack(padded))
    return stack.mean(axis=0).filled(np.nan), stack.std(axis=0, ddof=1).filled(0.0)


def _points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)

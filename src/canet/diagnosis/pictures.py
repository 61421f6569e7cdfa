"""The pictures of a diagnosis in SVG coordinates, for its page to draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from canet.diagnosis.confidence import Calibration
from canet.diagnosis.diagnosis import Diagnosis
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.words import accuracy_left, main_reliance, risky_blocks
from canet.report.curves import nice_ticks

Tick = tuple[float, str]
LONGEST = 24  # letters of a label
LETTER, LINE, GAP = 5.8, 12.0, 9.0  # sizes of a label in the picture


@dataclass(frozen=True)
class Mark:
    """A dot with its whisker, its title, and its label where there is room."""

    x: float
    y: float
    colour: str
    title: str
    whisker: tuple[float, float] | None = None
    label: str = ""
    anchor: str = "start"


@dataclass(frozen=True)
class Line:
    """A line through points, and the band around it."""

    points: str
    colour: str
    band: str = ""


@dataclass(frozen=True)
class Picture:
    """A small chart: what it shows, in words, and where everything lies."""

    width: ClassVar[int] = 300
    height: ClassVar[int] = 236
    left: ClassVar[int] = 34
    right: ClassVar[int] = 292
    top: ClassVar[int] = 28
    bottom: ClassVar[int] = 196

    title: str
    text: str
    x_title: str
    y_title: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)


class Scale:
    """Numbers from the first tick to the last → places on an axis."""

    def __init__(self, ticks: Sequence[float], first: float, last: float) -> None:
        self._ticks, self._first, self._last = ticks, first, last

    def __call__(self, value: float) -> float:
        low, high = self._ticks[0], self._ticks[-1]
        part = (min(max(value, low), high) - low) / (high - low)
        return round(self._first + part * (self._last - self._first), 1)

    def ticks(self) -> list[Tick]:
        return [(self(tick), f"{tick:g}") for tick in self._ticks]


def pictures(found: Diagnosis) -> list[Picture]:
    """Those that a diagnosis has the numbers for."""
    drawn = [risk_map(found)] if found.shift is not None else []
    graphs = [("validation", "valid", found.confidence.valid)]
    if found.confidence.new is not None:
        graphs.append(("new graph", "new", found.confidence.new))
    return [*drawn, reliability_diagram(graphs), abstention_curve(graphs)]


def risk_map(found: Diagnosis) -> Picture:
    """Each feature block by how much predictions rely on it and how far it moved."""
    assert found.shift is not None
    effects = {effect.name: effect for effect in main_reliance(found).features}
    moved = {block.name: block.effect for block in found.shift.blocks}
    most = max([effect.flipped.high for effect in effects.values()] + [5.0])
    x = Scale(nice_ticks(0, most), Picture.left, Picture.right)
    y = Scale([0, 0.25, 0.5, 0.75, 1], Picture.bottom, Picture.top)
    risky = risky_blocks(found)
    ranked = sorted(moved, key=lambda name: -moved[name] * effects[name].flipped.value)
    marks: list[Mark] = []
    for name in ranked:
        place = x(effects[name].flipped.value), y(moved[name])
        colour = "warn" if name in risky else "new"
        title = f"{name}: {effects[name].flipped.value:.1f} % flip, moved by {moved[name]:.2f}"
        marks.append(Mark(*place, colour, title, label=name))
    marks = _with_room(marks)
    return Picture(
        title="Relied on and moved",
        text="; ".join(mark.title for mark in marks),
        x_title="predictions that flip, %",
        y_title="moved",
        x_ticks=x.ticks(),
        y_ticks=y.ticks(),
        marks=marks,
    )


def reliability_diagram(graphs: Sequence[tuple[str, str, Calibration]]) -> Picture:
    """Accuracy by confidence; on the diagonal confidence is right."""
    x = Scale([0, 25, 50, 75, 100], Picture.left, Picture.right)
    y = Scale([0, 25, 50, 75, 100], Picture.bottom, Picture.top)
    lines = [Line(_points([(x(0), y(0)), (x(100), y(100))]), "none")]
    marks: list[Mark] = []
    for name, colour, found in graphs:
        places = [(x(b.confidence), y(b.accuracy.value)) for b in found.bins]
        lines.append(Line(_points(places), colour))
        marks += [
            Mark(
                *place,
                colour,
                f"{name}, {b.nodes:,} nodes: confidence {b.confidence:.0f} %, accuracy "
                f"{b.accuracy.value:.0f} %",
                whisker=(y(b.accuracy.low), y(b.accuracy.high)),
            )
            for place, b in zip(places, found.bins, strict=True)
        ]
    return Picture(
        title="Is confidence right?",
        text="; ".join(f"{n}: calibration error {c.error:.1f} points" for n, _, c in graphs),
        x_title="confidence, %",
        y_title="accuracy, %",
        x_ticks=x.ticks(),
        y_ticks=y.ticks(),
        lines=lines,
        marks=marks,
        legend=[(name, colour) for name, colour, _ in graphs],
    )


def abstention_curve(graphs: Sequence[tuple[str, str, Calibration]]) -> Picture:
    """Accuracy on the surest part of the nodes."""
    curves = [(name, colour, found.abstention) for name, colour, found in graphs]
    lowest = min(estimate.low for *_, curve in curves for estimate in curve.values())
    x = Scale([0, 25, 50, 75, 100], Picture.left, Picture.right)
    y = Scale(nice_ticks(lowest, 100), Picture.bottom, Picture.top)
    lines = []
    for _, colour, curve in curves:
        centre = [(x(part), y(estimate.value)) for part, estimate in curve.items()]
        upper = [(x(part), y(estimate.high)) for part, estimate in curve.items()]
        lower = [(x(part), y(estimate.low)) for part, estimate in curve.items()]
        lines.append(Line(_points(centre), colour, band=_points(upper + lower[::-1])))
    return Picture(
        title="What if it answers only where it is sure?",
        text="; ".join(
            f"{name}: {curve[100].value:.0f} % of all right, {curve[50].value:.0f} % of the surer "
            "half"
            for name, _, curve in curves
        ),
        x_title="nodes answered, the surest first, %",
        y_title="accuracy, %",
        x_ticks=x.ticks(),
        y_ticks=y.ticks(),
        lines=lines,
        legend=[(name, colour) for name, colour, _ in curves],
    )


@dataclass(frozen=True)
class Bar:
    """A value with its interval on a track from 0 to 100 %."""

    name: str
    estimate: Estimate
    colour: str
    note: str = ""


def expected_bars(found: Diagnosis) -> list[Bar]:
    """Estimates of the accuracy on the new graph, beside what was measured."""
    expected = found.expected
    if expected is None:
        return []
    bars = [
        Bar("on validation nodes", expected.valid, "valid"),
        Bar("expected", expected.thresholded, "new", "average thresholded confidence"),
        Bar("", expected.thresholded_entropy, "new", "the same, by entropy"),
        Bar("", expected.average_confidence, "new", "mean confidence at the fitted temperature"),
        Bar("", expected.difference, "new", "difference of mean confidences"),
    ]
    if (left := accuracy_left(found)) is not None:
        bars.append(Bar("if what moved told nothing", left, "warn", "on the training graph"))
    if expected.actual is not None:
        bars.append(Bar("by its labels", expected.actual, "true"))
    return bars


def _with_room(marks: Sequence[Mark]) -> list[Mark]:
    """Marks with their labels towards the middle, without those that would lie on others."""
    placed: list[tuple[float, float, float]] = []
    middle = (Picture.left + Picture.right) / 2
    labelled = []
    for mark in marks:
        label = mark.label if len(mark.label) <= LONGEST else f"{mark.label[: LONGEST - 1]}…"
        width, right = LETTER * len(label) + GAP, mark.x < middle
        start = mark.x + GAP if right else mark.x - width
        box = (start, start + width, mark.y)
        clear = all(
            box[1] < other[0] or other[1] < box[0] or abs(box[2] - other[2]) >= LINE
            for other in [*placed, *((o.x, o.x, o.y) for o in marks if o is not mark)]
        )
        if clear:
            placed.append(box)
        anchor = "start" if right else "end"
        labelled.append(replace(mark, label=label if clear else "", anchor=anchor))
    return labelled


def _points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in pairs)

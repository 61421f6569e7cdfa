"""The overview: where each method stands under shift, a line for each task and backbone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from canet.report.comparison import Comparison, Contender, Verdict
from canet.report.context import ReportContext
from canet.report.curves import nice_ticks
from canet.report.sections import Section
from canet.store.summary import OOD_MEAN

DOT_WIDTH = 3.0
"""Of a dot in percent of the axis, on a screen of common width."""


class Axis(NamedTuple):
    """The axis of scores that all lines share."""

    ticks: list[float]

    @classmethod
    def of(cls, comparisons: Sequence[Comparison]) -> Axis:
        scores = [score for c in comparisons for b in c.backbones for score, _ in _scores(c, b)]
        return cls(nice_ticks(min(scores), max(scores), most=8) if scores else [])

    def place(self, score: float) -> float:
        """Where a score lies, in percent of the width."""
        first, last = self.ticks[0], self.ticks[-1]
        return round(100 * (score - first) / (last - first), 2)


class Dot(NamedTuple):
    """A contender at its score, `lane` dots above the line."""

    score: float
    contender: Contender
    lane: int
    is_best: bool


class Standing(NamedTuple):
    """A line of the overview; `paper` has published scores and their methods, the best first."""

    section: Section
    verdict: Verdict
    dots: list[Dot]
    paper: list[tuple[float, str]]


def make_standings(
    sections: Sequence[Section], axis: Axis, context: ReportContext
) -> Iterator[Standing]:
    """A line for each comparison and backbone, which leads to its section."""
    for section in sections:
        for backbone in section.comparison.backbones:
            if verdict := section.comparison.verdict(backbone):
                dots = _dots(_scores(section.comparison, backbone), verdict, axis)
                yield Standing(section, verdict, dots, _published(verdict.ranked, context))


def count_best(verdicts: Iterable[Verdict]) -> list[tuple[int, list[str]]]:
    """How often somebody is best, the most often first, and all who are so often."""
    counts = Counter(verdict.ranked[0].label for verdict in verdicts)
    names = sorted(counts, key=str.casefold)
    times = sorted(set(counts.values()), reverse=True)
    return [(number, [name for name in names if counts[name] == number]) for number in times]


def apart(places: Sequence[float], width: float) -> list[int]:
    """A lane for each place, 0, 1, −1, 2, … from the middle, so that no dot hides another.

    The same places have the same lanes every time.
    """
    lanes = [0] * len(places)
    last: dict[int, float] = {}
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        outwards = ((n + 1) // 2 * (1 if n % 2 else -1) for n in count())
        lane = next(n for n in outwards if places[i] - last.get(n, -math.inf) >= width)
        lanes[i], last[lane] = lane, places[i]
    return lanes


def _dots(scores: Sequence[tuple[float, Contender]], verdict: Verdict, axis: Axis) -> list[Dot]:
    """Controls, which come last, are strokes as high as the line: they need no lane."""
    lanes = apart([axis.place(x) for x, c in scores if not c.control], DOT_WIDTH)
    lanes += [0] * (len(scores) - len(lanes))
    return [
        Dot(score, contender, lane, any(contender is best for best in verdict.best))
        for (score, contender), lane in zip(scores, lanes, strict=True)
    ]


def _scores(comparison: Comparison, backbone: str) -> list[tuple[float, Contender]]:
    """The contenders that have a score under shift, with it."""
    scores = [(c.score(OOD_MEAN), c) for c in comparison.of(backbone)]
    return [(score.mean, c) for score, c in scores if score.is_finite]


def _published(contenders: Sequence[Contender], context: ReportContext) -> list[tuple[float, str]]:
    """Those that were run here by their published numbers, the best first."""
    paper = [(context.published(c.config, OOD_MEAN), c.label) for c in contenders]
    scores = [(cell.mean, label) for cell, label in paper if cell and cell.mean is not None]
    return sorted(scores, key=lambda pair: -pair[0])

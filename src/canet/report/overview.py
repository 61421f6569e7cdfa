"""The overview: scores of all methods under shift, one row for each task and backbone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from canet.report.comparison import Comparison, Contender, Ranking
from canet.report.context import ReportContext
from canet.report.curves import nice_ticks
from canet.report.score import to_percent
from canet.report.sections import Section
from canet.store.summary import OOD_MEAN

DOT_WIDTH = 3.0
"""Width of a dot in percent of the axis, on a screen of common width."""


class Axis(NamedTuple):
    """The axis of scores in percent that all rows share."""

    ticks: list[float]

    @classmethod
    def of(cls, comparisons: Sequence[Comparison]) -> Axis:
        scores = [score for c in comparisons for b in c.backbones for score, _ in _scores(c, b)]
        return cls(nice_ticks(min(scores), max(scores), max_intervals=8) if scores else [])

    def position(self, score: float) -> float:
        """The position of a score in percent of the width."""
        first, last = self.ticks[0], self.ticks[-1]
        return round(100 * (score - first) / (last - first), 2)


class Dot(NamedTuple):
    """A contender at its score in percent, `lane` dots above the line."""

    score: float
    contender: Contender
    lane: int
    is_best: bool


class OverviewRow(NamedTuple):
    """A row of the overview; `paper` has published scores and labels, the best first."""

    section: Section
    ranking: Ranking
    dots: list[Dot]
    paper: list[tuple[float, str]]


def make_overview(
    sections: Sequence[Section], axis: Axis, context: ReportContext
) -> Iterator[OverviewRow]:
    """A row for each comparison and backbone with at least two ranked methods."""
    for section in sections:
        for backbone in section.comparison.backbones:
            ranking = section.comparison.ranking(backbone)
            if ranking and ranking.runner_up:
                dots = _dots(_scores(section.comparison, backbone), ranking, axis)
                yield OverviewRow(section, ranking, dots, _published(ranking.ranked, context))


def count_best(rankings: Iterable[Ranking]) -> list[tuple[int, list[str]]]:
    """Number of first ranks → labels with that number, the highest number first."""
    counts = Counter(ranking.ranked[0].label for ranking in rankings)
    names = sorted(counts, key=str.casefold)
    times = sorted(set(counts.values()), reverse=True)
    return [(number, [name for name in names if counts[name] == number]) for number in times]


def assign_lanes(positions: Sequence[float], width: float) -> list[int]:
    """A lane (0, 1, −1, 2, …) for each position, so that dots of this width do not overlap."""
    lanes = [0] * len(positions)
    last: dict[int, float] = {}
    for i in sorted(range(len(positions)), key=lambda i: positions[i]):
        outwards = ((n + 1) // 2 * (1 if n % 2 else -1) for n in count())
        lane = next(n for n in outwards if positions[i] - last.get(n, -math.inf) >= width)
        lanes[i], last[lane] = lane, positions[i]
    return lanes


def _dots(scores: Sequence[tuple[float, Contender]], ranking: Ranking, axis: Axis) -> list[Dot]:
    """The dots of a row; controls, which come last, are vertical lines and need no lane."""
    lanes = assign_lanes([axis.position(x) for x, c in scores if not c.control], DOT_WIDTH)
    lanes += [0] * (len(scores) - len(lanes))
    return [
        Dot(score, contender, lane, any(contender is best for best in ranking.best))
        for (score, contender), lane in zip(scores, lanes, strict=True)
    ]


def _scores(comparison: Comparison, backbone: str) -> list[tuple[float, Contender]]:
    """The scores under shift in percent, with their contenders."""
    scores = [(c.score(OOD_MEAN), c) for c in comparison.of(backbone)]
    return [(score.shown_mean, c) for score, c in scores if score.is_finite]


def _published(contenders: Sequence[Contender], context: ReportContext) -> list[tuple[float, str]]:
    """Published scores of the contenders in percent, the best first."""
    paper = [(context.published(c.config, OOD_MEAN), c.label) for c in contenders]
    scores = [
        (to_percent(cell.mean), label) for cell, label in paper if cell and cell.mean is not None
    ]
    return sorted(scores, key=lambda pair: -pair[0])

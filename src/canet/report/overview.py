"""The overview: scores of all methods under shift, one row for each task and backbone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from canet.report.comparison import Comparison, Contender, Ranking, ReportContext
from canet.report.curves import nice_ticks
from canet.report.score import to_percent
from canet.report.sections import Section
from canet.store.summary import OOD_MEAN


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


class OverviewRow(NamedTuple):
    """A row of the overview; scores are in percent, those of the paper the best first."""

    section: Section
    ranking: Ranking
    scores: list[tuple[float, Contender]]
    paper: list[tuple[float, str]]


def make_overview(sections: Sequence[Section], context: ReportContext) -> Iterator[OverviewRow]:
    """A row for each comparison and backbone with at least two ranked methods."""
    for section in sections:
        for backbone in section.comparison.backbones:
            ranking = section.comparison.ranking(backbone)
            if ranking and ranking.runner_up:
                scores = _scores(section.comparison, backbone)
                yield OverviewRow(section, ranking, scores, _published(ranking.ranked, context))


def count_best(rankings: Iterable[Ranking]) -> list[tuple[int, list[str]]]:
    """Number of first ranks → labels with that number, the highest number first."""
    counts = Counter(ranking.ranked[0].label for ranking in rankings)
    names = sorted(counts, key=str.casefold)
    times = sorted(set(counts.values()), reverse=True)
    return [(number, [name for name in names if counts[name] == number]) for number in times]


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

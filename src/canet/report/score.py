"""A score: values of several runs as one number with its spread, and the published one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import NamedTuple

from canet.store.summary import deviation

GAP = "–"


class Published(NamedTuple):
    """A number of a paper in percent; mean and std are None where it ran out of memory."""

    table: str
    mean: float | None
    std: float | None

    @property
    def text(self) -> str:
        return "OOM" if self.mean is None else f"{self.mean:.2f} ± {self.std:.2f}"


@dataclass(frozen=True)
class Score:
    """A number with its spread; NaN where a value is."""

    values: Sequence[float]  # one per run; none where every run is missing
    expected: int = 0  # how many runs were asked for; 0 where any number will do
    published: Published | None = None
    digits: int = 2
    rank: int = 0  # 1 for the best of those it is compared with, 2 for the second; 0 for no mark
    note: str = ""  # what a page shows below it

    @property
    def mean(self) -> float:
        return mean(self.values) if self.values else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of a sample, 0 for one run."""
        return deviation(self.values)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.mean)

    @property
    def has_spread(self) -> bool:
        return len(self.values) > 1 and self.is_finite

    @property
    def shown(self) -> float:
        """The mean with the digits that are shown, so that equals are ranked alike."""
        return round(self.mean, self.digits) if self.is_finite else -math.inf

    @property
    def text(self) -> str:
        """`95.95 ± 2.59`, with the number of runs where some are missing."""
        if math.isnan(self.mean):
            return GAP
        spread = f" ± {self.std:.{self.digits}f}" if self.has_spread else ""
        missing = len(self.values) < self.expected
        part = f" ({len(self.values)} of {self.expected})" if missing else ""
        return f"{self.mean:.{self.digits}f}{spread}{part}"

    @property
    def key(self) -> float | str:
        """What a page sorts it by; nothing if it is not a number."""
        return round(self.mean, 4) if self.is_finite else ""


def rank(scores: Sequence[Score]) -> list[Score]:
    """Scores that are compared with each other, the best and the second marked; never a lone one.

    One that is not a number is not marked.
    """
    if len(scores) < 2:
        return list(scores)
    places = [1 + sum(other.shown > score.shown for other in scores) for score in scores]
    return [
        replace(score, rank=place if place < 3 and score.is_finite else 0)
        for score, place in zip(scores, places, strict=True)
    ]


def number(value: float, digits: int) -> str:
    """With a true minus sign, but none before nought; a dash for what is not a number."""
    if not math.isfinite(value):
        return GAP
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")

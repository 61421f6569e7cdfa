"""The score of one or more runs: mean, spread and, if known, the published score."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import NamedTuple, TypeVar

import numpy as np

from canet.store.summary import standard_deviation
from canet.util.rendering import GAP

Number = TypeVar("Number", float, np.ndarray)


def to_percent(share: Number) -> Number:
    """A share between 0 and 1 in percent: the one place where a score is multiplied by 100."""
    return 100 * share


class Published(NamedTuple):
    """A published score between 0 and 1; mean and std are None if the run ran out of memory."""

    table: str
    mean: float | None
    std: float | None

    @property
    def text(self) -> str:
        if self.mean is None or self.std is None:
            return "OOM"
        return f"{to_percent(self.mean):.2f} ± {to_percent(self.std):.2f}"


@dataclass(frozen=True)
class Score:
    """Values of several runs, with their mean and standard deviation.

    A score is a share between 0 and 1 and is shown in percent. Other quantities, such as times or
    counts, have `is_share=False` and are shown as they are.
    """

    values: Sequence[float]  # one per finished run
    expected: int = 0  # number of planned runs; 0 if any number of runs is complete
    published: Published | None = None
    digits: int = 2
    rank: int = 0  # 1 for the best of the compared scores, 2 for the second, 0 for all others
    note: str = ""  # shown below the number on a page
    is_share: bool = True

    @property
    def mean(self) -> float:
        """Mean of the values; NaN if there are none or one of them is NaN."""
        return mean(self.values) if self.values else math.nan

    @property
    def std(self) -> float:
        """Sample standard deviation; 0 for one run."""
        return standard_deviation(self.values)

    @property
    def shown_mean(self) -> float:
        """The mean as it is shown: a share in percent."""
        return self.shown(self.mean)

    @property
    def shown_std(self) -> float:
        return self.shown(self.std)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.mean)

    @property
    def has_spread(self) -> bool:
        return len(self.values) > 1 and self.is_finite

    @property
    def rounded(self) -> float:
        """The mean rounded to the digits shown, so that equal texts have equal ranks."""
        return round(self.shown_mean, self.digits) if self.is_finite else -math.inf

    @property
    def text(self) -> str:
        """Such as `95.95 ± 2.59`, with the number of runs if some are missing."""
        if math.isnan(self.mean):
            return GAP
        spread = f" ± {self.shown_std:.{self.digits}f}" if self.has_spread else ""
        is_partial = len(self.values) < self.expected
        count = f" ({len(self.values)} of {self.expected})" if is_partial else ""
        return f"{self.shown_mean:.{self.digits}f}{spread}{count}"

    def shown(self, value: float) -> float:
        """A value of this score in the unit that is shown."""
        return to_percent(value) if self.is_share else value


def rank(scores: Sequence[Score]) -> list[Score]:
    """Mark the best and the second best of at least two scores, if they are finite."""
    if len(scores) < 2:
        return list(scores)
    ranks = [1 + sum(other.rounded > score.rounded for other in scores) for score in scores]
    return [
        replace(score, rank=rank if rank < 3 and score.is_finite else 0)
        for score, rank in zip(scores, ranks, strict=True)
    ]

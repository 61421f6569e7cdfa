"""What a report knows besides the runs: published numbers, presets, searches, extra test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canet.report.score import Published
from canet.store import RunConfig, RunFolder


@dataclass(frozen=True)
class ExtraSet:
    """A test set that runs are scored on after training; it is not part of their result."""

    task: str  # whose runs may have it
    name: str  # of its score
    file: str  # in the folder of a run, with the score under that name
    follows: str  # the split that it is shown after
    about: str  # what it is, in a word or two
    note: str  # what a reader of the task's scores must know about it

    def read(self, place: RunFolder) -> dict[str, float]:
        """The score in percent by its name; nothing where the run has none."""
        if not (place.path / self.file).exists():
            return {}
        return {self.name: float(place.read_json(self.file)[self.name])}


@dataclass(frozen=True)
class ReportContext:
    """What is known about runs but is not in their folders; nothing by default."""

    published: Callable[[RunConfig, str], Published | None] = lambda config, split: None
    """The published number of a run's score on a split."""
    preset: Callable[[RunConfig], Mapping[str, Any] | None] = lambda config: None
    """The settings that such a run starts from."""
    searched: Callable[[RunConfig], bool] = lambda config: False
    """Whether a run has the settings that a search found."""
    extra_sets: Sequence[ExtraSet] = ()


NO_CONTEXT = ReportContext()

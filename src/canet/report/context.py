"""What a report is told besides the runs: published numbers, presets, searches, extra test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canet.report.score import Published
from canet.store import RunConfig, RunFolder


@dataclass(frozen=True)
class ExtraSet:
    """A test set that runs are scored on after training; no part of their result.

    Args:
        task: Whose runs may have it.
        name: Of its score.
        file: Beside a run, with the score under that name.
        beside: The split that it is shown behind.
        about: What it is, in a word or two.
        note: What a reader of the task's scores must know of it.
    """

    task: str
    name: str
    file: str
    beside: str
    about: str
    note: str

    def read(self, place: RunFolder) -> dict[str, float]:
        """The score in percent by its name; nothing where the run has none."""
        if not (place.path / self.file).exists():
            return {}
        return {self.name: float(place.read_json(self.file)[self.name])}


@dataclass(frozen=True)
class ReportContext:
    """What is known of runs but does not stand in their folders; by itself nothing.

    Args:
        published: The number to set beside a run's score on a split.
        preset: The settings that such a run starts from.
        searched: Whether a run has the settings that a search found.
        extra_sets: Test sets whose scores are kept beside runs.
    """

    published: Callable[[RunConfig, str], Published | None] = lambda config, split: None
    preset: Callable[[RunConfig], Mapping[str, Any] | None] = lambda config: None
    searched: Callable[[RunConfig], bool] = lambda config: False
    extra_sets: Sequence[ExtraSet] = ()


NO_CONTEXT = ReportContext()

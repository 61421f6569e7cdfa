"""What a report knows besides the runs: published scores, defaults, searches, extra test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canet.report.score import Published
from canet.store import RunConfig, RunFolder


@dataclass(frozen=True)
class ExtraSet:
    """A test set on which runs are scored after training; its score is not in result.json."""

    task: str  # task of the runs
    name: str  # name of the score
    file: str  # JSON file in the run folder with the score under `name`
    follows: str  # the split after which a table shows it
    subtitle: str  # one or two words below the column head
    note: str  # explanation in the task's section of the report

    def read(self, folder: RunFolder) -> dict[str, float]:
        """The score by its name; empty if the run does not have it."""
        if not (folder.path / self.file).exists():
            return {}
        return {self.name: float(folder.read_json(self.file)[self.name])}


@dataclass(frozen=True)
class ReportContext:
    """Knowledge about runs that is not in their folders; empty by default."""

    published: Callable[[RunConfig, str], Published | None] = lambda config, split: None
    """The published score of such a run on a split."""
    default_settings: Callable[[RunConfig], Mapping[str, Any] | None] = lambda config: None
    """The default settings of such a run."""
    searched: Callable[[RunConfig], bool] = lambda config: False
    """Whether a run has the settings that a search found."""
    extra_sets: Sequence[ExtraSet] = ()


NO_CONTEXT = ReportContext()

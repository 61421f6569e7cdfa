"""Finished jobs, found by their config."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from canet.experiments.jobs import job_folder
from canet.experiments.results import results_of
from canet.training import RunConfig, RunFolder


class Finished:
    """The finished ones among the jobs below a folder.

    Args:
        root: Folder of the jobs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, config: RunConfig) -> RunFolder | None:
        """Folder of a job, or None while it is not finished."""
        place = job_folder(self.root, config)
        return place if place.finished else None

    def places(self, configs: Iterable[RunConfig]) -> list[RunFolder]:
        """Folders of those jobs that are finished, in the order given."""
        found = (self.place(config) for config in configs)
        return [place for place in found if place is not None]

    def scores(self, configs: Iterable[RunConfig], split: str) -> list[float]:
        """Scores in percent of those jobs that are finished; `split` as in `Result.scores`."""
        results = results_of(self.places(configs))
        return [score for result in results for score in result.scores(split)]

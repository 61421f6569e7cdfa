"""Finished jobs, found by their config."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from canet.report.results import Result, results_of
from canet.runs import job_folder
from canet.training import RunConfig, RunFolder


def with_curves(config: RunConfig) -> RunConfig:
    """The same job, every split scored at every epoch: it serves whoever needs no curves, too."""
    return replace(config, ood_curves=True)


def serving_folder(root: Path, config: RunConfig) -> RunFolder:
    """Where the run that serves a job is: its own folder, or that of the job with curves."""
    fuller = job_folder(root, with_curves(config))
    return fuller if fuller.finished else job_folder(root, config)


class Finished:
    """The finished ones among the jobs below a folder; each is read once.

    Args:
        root: Folder of the jobs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._results: dict[tuple[str, int], list[Result]] = {}

    def places(self, configs: Iterable[RunConfig]) -> list[RunFolder]:
        """Folders of those jobs that are finished, in the order given."""
        return [place for result in self._read(configs) for place in result.places]

    def scores(self, configs: Iterable[RunConfig], split: str) -> list[float]:
        """Scores in percent of those jobs that are finished; `split` as in `Result.scores`."""
        return [score for result in self._read(configs) for score in result.scores(split)]

    def _read(self, configs: Iterable[RunConfig]) -> list[Result]:
        found = []
        for config in configs:
            key = (config.name, config.seed)
            if key not in self._results:
                place = serving_folder(self.root, config)
                self._results[key] = results_of([place] if place.finished else [])
            found += self._results[key]
        return found

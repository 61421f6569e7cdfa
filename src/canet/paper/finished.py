"""Finished jobs, found by their config."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from canet.paper.french_labels import SHIFTED_FR
from canet.report.results import with_extra_scores
from canet.runs import job_folder
from canet.store import RunConfig, RunFolder
from canet.store.summary import FinishedRun, read_run


def with_curves(config: RunConfig) -> RunConfig:
    """The same job, every split scored at every epoch: it serves whoever needs no curves, too."""
    return replace(config, ood_curves=True)


def serving_folder(root: Path, config: RunConfig) -> RunFolder:
    """Where the run that serves a job is: its own folder, or that of the job with curves."""
    fuller = job_folder(root, with_curves(config))
    return fuller if fuller.finished else job_folder(root, config)


class Finished:
    """The finished ones among the jobs below a folder; the scores of each are read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._runs: dict[Path, FinishedRun] = {}

    def places(self, configs: Iterable[RunConfig]) -> list[RunFolder]:
        """Folders of those jobs that are finished, in the order given."""
        places = (serving_folder(self.root, config) for config in configs)
        return [place for place in places if place.finished]

    def scores(self, configs: Iterable[RunConfig], split: str) -> list[float]:
        """Scores in percent of those jobs that have one; `split` as in `FinishedRun.score`."""
        runs = (self._run(place) for place in self.places(configs))
        return [run.score(split) for run in runs if run.has(split)]

    def _run(self, place: RunFolder) -> FinishedRun:
        if place.path not in self._runs:
            self._runs[place.path] = with_extra_scores(read_run(place), [SHIFTED_FR])
        return self._runs[place.path]

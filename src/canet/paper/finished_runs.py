"""Finished runs, found by their config."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from canet.runs import job_folder
from canet.store import RunConfig, RunFolder
from canet.store.summary import read_run


def with_curves(config: RunConfig) -> RunConfig:
    """The same job with all splits scored at every epoch."""
    return replace(config, ood_curves=True)


def result_folder(root: Path, config: RunConfig) -> RunFolder:
    """The folder of a job's result: that of the same job with curves if finished, else its own."""
    other = job_folder(root, with_curves(config))
    return other if other.finished else job_folder(root, config)


class FinishedRuns:
    """The finished runs below a folder; the scores of each are read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._run = cache(lambda path: read_run(RunFolder(path)))

    def folders(self, configs: Iterable[RunConfig]) -> list[RunFolder]:
        """Folders of the finished jobs, in the given order."""
        folders = (result_folder(self.root, config) for config in configs)
        return [folder for folder in folders if folder.finished]

    def scores(self, configs: Iterable[RunConfig], split: str) -> list[float]:
        """Scores between 0 and 1 of the jobs that have one; `split` as in `FinishedRun.score`."""
        runs = (self._run(folder.path) for folder in self.folders(configs))
        return [run.score(split) for run in runs if run.has(split)]

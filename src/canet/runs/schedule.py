"""Which jobs are left, and in which order processes take them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from canet.runs.claims import clear_claims, is_claimed
from canet.runs.progress import JobProgress
from canet.runs.worker import data_of, read_failure
from canet.training import RunConfig, RunFolder


class Job(NamedTuple):
    """A job with what takes a moment to find out.

    Args:
        config: The job.
        name: What it shares with the jobs that differ from it in their seed alone.
        place: Its folder.
        at_once: How many such jobs a process runs side by side.
    """

    config: RunConfig
    name: str
    place: RunFolder
    at_once: int


def label(jobs: Sequence[Job]) -> str:
    """What jobs that differ in their seed alone are called."""
    config = jobs[0].config
    seeds = ", ".join(str(job.config.seed) for job in jobs)
    return f"{config.task} {config.method}-{config.backbone} seed {seeds}"


class Schedule:
    """Which jobs are left, and which of them to start next.

    Args:
        jobs: All jobs, in the order in which to start them.
        quiet: Show no progress.
    """

    def __init__(self, jobs: Sequence[Job], quiet: bool) -> None:
        self._jobs = {job.place.path: job for job in jobs}
        self._left = dict(self._jobs)
        self._running: dict[Path, Job] = {}
        self._alone: set[Path] = set()  # jobs whose process died while it ran others too
        self._lines: dict[Path, list[str]] = {}
        before = [job for job in self._jobs.values() if self._is_over(job)]
        for job in before:
            del self._left[job.place.path]
        self.progress = JobProgress(len(self._jobs), len(before), quiet)

    @property
    def complete(self) -> bool:
        return not self._left

    def failures(self) -> list[tuple[Job, list[str]]]:
        return [(job, self._lines[path]) for path, job in self._jobs.items() if path in self._lines]

    def start(self, last: Job | None) -> list[Job]:
        """The next jobs for a process whose last one was `last`; none if all are being run.

        First jobs whose trainer is loaded, then those whose task is, then those of which no other
        worker has loaded the trainer; else in the order given.
        """

        def cost(job: Job) -> tuple[bool, bool, bool]:
            other_data = last is None or data_of(last.config) != data_of(job.config)
            return last is None or last.name != job.name, other_data, job.name in elsewhere

        elsewhere = {job.name for job in self._running.values()}
        started: list[Job] = []
        for job in sorted(self._left.values(), key=cost):
            if (not started or self._beside(job, started)) and self._free(job):
                started.append(job)
                self._running[job.place.path] = job
        if not self._running and self._left:
            self.progress.waiting(len(self._left))
        return started

    def reached(self, jobs: Sequence[Job], fraction: float, score: float) -> None:
        """Jobs that are run here have come so far, with this validation score."""
        self.progress.running([job.place.path for job in jobs], label(jobs), fraction, score)

    def stopped(self, jobs: Sequence[Job], died: bool = False) -> None:
        """Jobs are no longer run here: they are over, or somebody has to go on with them."""
        if died and len(jobs) > 1:
            self._alone.update(job.place.path for job in jobs)
        for job in jobs:
            del self._running[job.place.path]
            self.progress.stopped(job.place.path)
            self._settle(job)

    def _beside(self, job: Job, started: Sequence[Job]) -> bool:
        """Whether a job may run side by side with those just started."""
        alone = not self._alone.isdisjoint({job.place.path, started[0].place.path})
        return job.name == started[0].name and len(started) < job.at_once and not alone

    def _free(self, job: Job) -> bool:
        path = job.place.path
        return path not in self._running and not self._settle(job) and not is_claimed(path)

    def _settle(self, job: Job) -> bool:
        over = self._is_over(job)
        if over:
            del self._left[job.place.path]
            self.progress.ended(job.place.path, job.place.path in self._lines)
        return over

    def _is_over(self, job: Job) -> bool:
        if job.place.finished:
            clear_claims(job.place.path)  # where its process was killed right after the marker
            return True
        lines = read_failure(job.place)
        if lines is not None:
            self._lines[job.place.path] = lines
        return lines is not None

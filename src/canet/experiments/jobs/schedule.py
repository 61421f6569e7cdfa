"""Which jobs are left, and in which order processes take them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from canet.experiments.jobs.claims import clear_claims, is_claimed
from canet.experiments.jobs.progress import JobProgress
from canet.experiments.jobs.worker import data_of, read_failure
from canet.training import RunConfig, RunFolder


class Job(NamedTuple):
    """A job with its name, which takes a moment to compute, and its folder."""

    config: RunConfig
    name: str
    place: RunFolder

    @property
    def label(self) -> str:
        config = self.config
        return f"{config.task} {config.method}-{config.backbone} seed {config.seed}"


class Schedule:
    """Which jobs are left, and which of them to start next."""

    def __init__(self, jobs: Sequence[Job], quiet: bool) -> None:
        self._jobs = {job.place.path: job for job in jobs}
        self._left = dict(self._jobs)
        self._running: dict[Path, Job] = {}
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

    def start(self, last: Job | None) -> Job | None:
        """The next job for a process whose last one was `last`; None if all are being run.

        First jobs whose trainer is loaded, then those whose task is, then those of which no other
        worker has loaded the trainer; else in the order given.
        """

        def cost(job: Job) -> tuple[bool, bool, bool]:
            other_data = last is None or data_of(last.config) != data_of(job.config)
            return last is None or last.name != job.name, other_data, job.name in elsewhere

        elsewhere = {job.name for job in self._running.values()}
        for job in sorted(self._left.values(), key=cost):
            if job.place.path in self._running or self._settle(job) or is_claimed(job.place.path):
                continue
            self._running[job.place.path] = job
            return job
        if not self._running and self._left:
            self.progress.waiting(len(self._left))
        return None

    def reached(self, job: Job, fraction: float, score: float) -> None:
        """A job that is run here has come so far, with this validation score."""
        self.progress.running(job.place.path, job.label, fraction, score)

    def stopped(self, job: Job) -> None:
        """A job is no longer run here: it is over, or somebody has to go on with it."""
        del self._running[job.place.path]
        self.progress.stopped(job.place.path)
        self._settle(job)

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

"""How far many jobs are: one bar on a terminal, a line now and then elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from canet.console import SECONDS_BETWEEN_LINES


class JobProgress:
    """Shows on standard error how many of all jobs are done and about how long the rest takes.

    Args:
        total: Number of jobs.
        done: Number of jobs that were done before.
        quiet: Show nothing.
    """

    def __init__(self, total: int, done: int, quiet: bool) -> None:
        self._total, self._done = total, done
        self._failed = 0
        self._parts: dict[Path, float] = {}  # of running jobs
        self._text = ""
        self._quiet = quiet
        self._last_line = time.monotonic()
        self._first: tuple[float, float] | None = None  # time and jobs done at the first report
        self._bar: Progress | None = None
        if not quiet and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.fields[count]}"),
                BarColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task("", total=total, completed=done, count=self._count())

    @contextmanager
    def showing(self) -> Iterator[JobProgress]:
        if not self._bar:
            yield self
            return
        with self._bar:
            yield self

    def running(self, jobs: Sequence[Path], label: str, fraction: float, score: float) -> None:
        """Jobs have come so far, with this validation score."""
        self._parts.update(dict.fromkeys(jobs, fraction))
        if self._first is None:
            self._first = time.monotonic(), self._reached()
        self._text = f"{label}, valid {score:.1f}"
        self._show()

    def stopped(self, job: Path) -> None:
        """A job is no longer run here, and not done: what it had reached counts no more."""
        self._parts.pop(job, None)

    def ended(self, job: Path, failed: bool) -> None:
        """A job is finished or has failed, here or in another process."""
        self._parts.pop(job, None)
        self._done += 1
        self._failed += failed
        self._show()

    def waiting(self, jobs: int) -> None:
        """Nothing is left but jobs that other processes run."""
        self._text = f"waiting for {jobs} that other processes run"
        self._show()

    def _show(self) -> None:
        if self._bar:
            task = self._bar.tasks[0].id
            self._bar.update(
                task, completed=self._reached(), count=self._count(), description=self._text
            )
        elif not self._quiet and time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            parts = [self._count(), self._time_left(), self._text]
            print("; ".join(part for part in parts if part), file=sys.stderr)

    def _reached(self) -> float:
        return self._done + sum(self._parts.values())

    def _count(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._done}/{self._total} jobs{failed}"

    def _time_left(self) -> str:
        """At the pace since the first report; nothing before there is one to go by."""
        begin, before = self._first or (0.0, self._total)
        here = self._reached() - before
        if here <= 0:
            return ""
        minutes = (time.monotonic() - begin) / here * (self._total - self._reached()) / 60
        return f"about {max(1, round(minutes))} min left"

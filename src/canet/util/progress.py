"""How far a command is: one bar on a terminal, a line now and then elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0
STAGES = {"reading": 0.05, "checking": 0.05, "training": 0.8, "scoring": 0.09, "saving": 0.01}
"""Stages of a fit → about what share of the time each takes on a large graph."""


class Display:
    """Shows on standard error how many of all are done, running and failed, and the time left.

    Args:
        total: How many there are.
        done: How many were done before.
        unit: What they are.
        quiet: Show nothing.
    """

    def __init__(self, total: int, done: int = 0, unit: str = "runs", quiet: bool = False) -> None:
        self._total, self._unit, self._quiet = total, unit, quiet
        self._reached = float(done)
        self._stage = ""
        self._first: tuple[float, float] | None = None  # time and what was done at the first update
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        if not self._quiet and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.fields[count]}"),
                BarColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task("", total=total, completed=done, count=self._count(done, 0, 0))

    def update(
        self, done: int, running: int = 0, failed: int = 0, text: str = "", part: float = 0.0
    ) -> None:
        """Show new counts; `part` is the finished share of what is running, `text` a remark."""
        self._reached = done + part
        if self._stage:
            before = list(STAGES.values())[: list(STAGES).index(self._stage)]
            self._reached = sum(before) + STAGES[self._stage] * self._reached
        if self._first is None:
            self._first = time.monotonic(), self._reached
        count = self._stage or self._count(done, running, failed)
        if self._bar:
            task = self._bar.tasks[0].id
            self._bar.update(task, completed=self._reached, count=count, description=text)
        elif not self._quiet and time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            parts = [count, self._time_left(), text]
            print("; ".join(part for part in parts if part), file=sys.stderr)

    def stage(self, name: str) -> None:
        """Show that this one of `STAGES` begins; `update` then says how far it is."""
        self._stage, self._first = name, None
        self.update(0)

    def of_training(
        self, label: str, done: int = 0, running: int = 0, failed: int = 0, unit: str = "epoch"
    ) -> Callable[[int, int, float], None]:
        """A callback that shows how far a run is, or `running` runs that are trained together."""

        def report(epoch: int, total: int, score: float) -> None:
            text = f"{label}: {unit} {epoch}/{total}, valid {score:.1f}"
            self.update(done, running, failed, text, part=max(1, running) * epoch / total)
            if self._stage and epoch == total:
                self.stage("scoring")

        return report

    def __enter__(self) -> Display:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def _count(self, done: int, running: int, failed: int) -> str:
        words = [f"{done}/{self._total} {self._unit}"]
        words += [f"{running} running"] if running else []
        words += [f"{failed} failed"] if failed else []
        return ", ".join(words)

    def _time_left(self) -> str:
        """At the pace since the first update; empty before anything is done."""
        begin, before = self._first or (0.0, self._reached)
        here = self._reached - before
        if here <= 0:
            return ""
        minutes = (time.monotonic() - begin) / here * (self._total - self._reached) / 60
        return f"about {max(1, round(minutes))} min left"


_shown: ContextVar[Display | None] = ContextVar("shown", default=None)


@contextmanager
def fit_display(stage: str, quiet: bool) -> Iterator[Display]:
    """One bar for all stages of a fit, of which this one begins.

    Inside another such context, for instance of a command that calls `fit`, it is the same bar.
    """
    if (outer := _shown.get()) is not None:
        outer.stage(stage)
        yield outer
        return
    display = Display(1, quiet=quiet)
    display.stage(stage)
    token = _shown.set(display)
    try:
        with display:
            yield display
    finally:
        _shown.reset(token)

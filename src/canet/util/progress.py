"""Progress of a command: a bar on a terminal or in a notebook, else a line every few seconds."""

import sys
import time
from contextvars import ContextVar
from functools import partial
from importlib.util import find_spec
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from canet.errors import printable

SECONDS_BETWEEN_LINES = 10.0


class Display:
    """Progress on standard error: how many items are done, running and failed, and the time left.

    `unit` is the name of the items, such as `runs`, of which some were `done` before.
    """

    def __init__(self, total: int, done: int = 0, unit: str = "runs", quiet: bool = False) -> None:
        self._total, self._unit, self._quiet = total, unit, quiet
        self._completed = float(done)
        self._first: tuple[float, float] | None = None  # time and progress of the first update
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        self._said: set[str] = set()
        screen = Console(stderr=True, markup=False)
        in_notebook = screen.is_jupyter and find_spec("ipywidgets") is not None
        if not quiet and (sys.stderr.isatty() or in_notebook):
            self._bar = Progress(
                TextColumn("{task.fields[count]}"),
                BarColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}", markup=False),
                console=screen,
                transient=True,
            )
            self._bar.add_task("", total=total, completed=done, count=self._count(done, 0, 0))

    def update(
        self, done: int, running: int = 0, failed: int = 0, text: str = "", part: float = 0.0
    ) -> None:
        """Show new counts and a `text`; `part` is the finished share of the running items."""
        self._show(done + part, self._count(done, running, failed), text)

    def _show(self, completed: float, count: str, text: str) -> None:
        self._completed, text = completed, printable(text)
        if self._first is None:
            self._first = time.monotonic(), completed
        if self._bar:
            task = self._bar.tasks[0].id
            self._bar.update(task, completed=completed, count=count, description=text)
        elif not self._quiet and time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            parts = [count, self._time_left(), text]
            print("; ".join(part for part in parts if part), file=sys.stderr)

    def say(self, text: str) -> None:
        """Print a line, unless it was printed before."""
        if text and not self._quiet and text not in self._said:
            self._said.add(text)
            show = self._bar.console.print if self._bar else partial(print, file=sys.stderr)
            show(printable(text))

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def _count(self, done: int, running: int, failed: int) -> str:
        words = [f"{done}/{self._total} {self._unit}"] if self._total > 1 else []
        words += [f"{running} running"] if running else []
        words += [f"{failed} failed"] if failed else []
        return ", ".join(words)

    def _time_left(self) -> str:
        """Estimate the time left from the speed since the first update; empty if unknown."""
        begin, before = self._first or (0.0, self._completed)
        progress = self._completed - before
        if progress <= 0:
            return ""
        minutes = (time.monotonic() - begin) / progress * (self._total - self._completed) / 60
        return f"about {round(minutes)} min left" if minutes >= 1 else "less than 1 min left"


current_display: ContextVar[Display | None] = ContextVar("current_display", default=None)
"""The display that `say` uses."""


def say(text: str) -> None:
    """Print a line above the bar of the current display; nothing if there is none."""
    if (display := current_display.get()) is not None:
        display.say(text)

"""Progress of a command: a bar on a terminal or in a notebook, else a line every few seconds."""

import math
import sys
import time
from contextvars import ContextVar
from functools import partial
from importlib.util import find_spec
from threading import Event, Thread
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from canet.errors import printable

SECONDS_BETWEEN_LINES = 10.0


class Display:
    """Progress on standard error: how many items are done, running and failed, and the time left.

    `unit` is the name of the items, such as `runs`, of which some were `done` before.
    """

    _later = 0.0  # time of what follows, relative to the time of what is estimated

    def __init__(self, total: int, done: int = 0, unit: str = "runs", quiet: bool = False) -> None:
        self._total, self._unit, self._quiet = total, unit, quiet
        self._completed = float(done)
        self._first: tuple[float, float] | None = None  # time and progress of the first update
        self._end = math.inf  # estimated time of the end
        self._counts, self._text, self._stopped = self._count(done, 0, 0), "", Event()
        self._bar: Progress | None = None
        self._said: set[str] = set()
        screen = Console(stderr=True, markup=False)
        in_notebook = screen.is_jupyter and find_spec("ipywidgets") is not None
        if not quiet and (sys.stderr.isatty() or in_notebook):
            self._bar = Progress(
                TextColumn("{task.fields[count]}"),
                BarColumn(),
                TextColumn("{task.fields[display].time_left}"),
                TextColumn("{task.description}", markup=False),
                console=screen,
                transient=True,
            )
            self._bar.add_task("", total=total, completed=done, count=self._counts, display=self)

    def update(
        self, done: int, running: int = 0, failed: int = 0, text: str = "", part: float = 0.0
    ) -> None:
        """Show new counts and a `text`; `part` is the finished share of the running items."""
        self._show(done + part, self._count(done, running, failed), text)

    def _show(self, completed: float, count: str, text: str) -> None:
        self._completed, self._counts, self._text = completed, count, printable(text)
        now = time.monotonic()
        begin, before = self._first = self._first or (now, completed)
        if completed > before:
            self._end = now + (now - begin) / (completed - before) * (self._total - completed)
        if self._bar:
            task = self._bar.tasks[0].id
            self._bar.update(task, completed=completed, count=count, description=self._text)

    def expect(self, seconds: float) -> None:
        """Show this time left, which counts down until the next estimate; infinity: not known."""
        now = time.monotonic()
        begin, _ = self._first or (now, 0.0)
        self._end = now + (1 + self._later) * seconds + self._later * (now - begin)

    @property
    def line(self) -> str:
        """Counts, time left and text of the last update."""
        return "; ".join(filter(None, [self._counts, self.time_left, self._text]))

    def _print_lines(self) -> None:
        while not self._stopped.wait(SECONDS_BETWEEN_LINES):
            if self.line:
                print(self.line, file=sys.stderr)

    def say(self, text: str) -> None:
        """Print a line, unless it was printed before."""
        if text and not self._quiet and text not in self._said:
            self._said.add(text)
            show = self._bar.console.print if self._bar else partial(print, file=sys.stderr)
            show(printable(text))

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        elif not self._quiet:
            Thread(target=self._print_lines, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._bar:
            self._bar.stop()

    def _count(self, done: int, running: int, failed: int) -> str:
        words = [f"{done}/{self._total} {self._unit}"] if self._total > 1 else []
        words += [f"{running} running"] if running else []
        words += [f"{failed} failed"] if failed else []
        return ", ".join(words)

    @property
    def time_left(self) -> str:
        """The time left by the last estimate; empty if there is none."""
        seconds = self._end - time.monotonic()
        if seconds == math.inf:
            return ""
        if seconds <= 0:
            return "" if self._completed >= self._total else "longer than estimated"
        tens = 10 * math.ceil(seconds / 10)
        return f"about {tens} s left" if tens < 120 else f"about {round(seconds / 60)} min left"


current_display: ContextVar[Display | None] = ContextVar("current_display", default=None)
"""The display that `say` uses."""


def expect(seconds: float) -> None:
    """Show this time left in the current display, if there is one; see `Display.expect`."""
    if (display := current_display.get()) is not None:
        display.expect(seconds)


def say(text: str) -> None:
    """Print a line above the bar of the current display; nothing if there is none."""
    if (display := current_display.get()) is not None:
        display.say(text)

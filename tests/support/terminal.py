"""A terminal and a clock for tests of the output of commands."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest

from canet.util import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """The printed lines, without escape sequences for colours and the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue()).splitlines()

    def last_bar(self) -> str:
        return [line.strip() for line in self.lines() if line.strip()][-1]


@contextmanager
def terminal() -> Iterator[Terminal]:
    """Make standard output and standard error a terminal of 80 columns during the block."""
    screen = Terminal()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(screen), redirect_stderr(screen):
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "80")
        yield screen


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now))

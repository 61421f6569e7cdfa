"""Being told to stop: Ctrl-C, SIGTERM and SIGHUP let a run keep what it has before it ends.

A command heeds the signals for as long as it works (`heeded`). Where it can end at any moment, the
first one ends it; inside `deferred` it is only remembered, and whoever works there asks `requested`
at a moment at which stopping costs nothing. A second signal does not wait. Once a command is
`State.ending`, further ones change nothing. Signals that the process was started to ignore, as by
`nohup`, stay ignored. Without `heeded`, as in library use, nothing here does anything.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""Those that this system has."""
NOTHING_LOST = "interrupted; what was finished is kept, and the same command does the rest"


class Interrupted(BaseException):
    """The process was told to stop; the text says what was kept and how to go on.

    No `Exception`, so that no job takes it for a failure of its own.

    Args:
        number: Of the signal.
        text: One line.
    """

    def __init__(self, number: int, text: str = NOTHING_LOST) -> None:
        super().__init__(number, text)
        self.number = number

    def __str__(self) -> str:
        return str(self.args[1])

    @property
    def exit_code(self) -> int:
        """As shells give it to a process that a signal ended."""
        return 128 + self.number


class State:
    """What the signals of this process have said so far, and whether it still listens.

    Whoever catches `Interrupted` to end the process sets `ending` at once, by an assignment: a
    second signal may raise in any call, that of a function which would set it too.
    """

    number: int | None = None
    deferring = False
    ending = False


@contextmanager
def heeded() -> Iterator[None]:
    """Raise `Interrupted` when told to stop, as long as the block lasts; main thread only.

    After a block that was told to and is ending the process, signals are ignored for good.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = heed(SIGNALS)
    try:
        yield
    finally:
        told_to_end = State.ending and State.number is not None
        State.number = None
        for number, handler in before.items():
            after = signal.SIG_DFL if handler is None else handler
            signal.signal(number, signal.SIG_IGN if told_to_end else after)


def heed(signals: Sequence[int]) -> dict[int, Any]:
    """Heed signals from now on, but for ignored ones; gives their handlers before."""
    State.number, State.deferring, State.ending = None, False, False
    heard = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, _handle) for number in heard}


@contextmanager
def deferred() -> Iterator[None]:
    """Let a first signal wait until somebody asks for it."""
    before, State.deferring = State.deferring, True
    try:
        yield
    finally:
        State.deferring = before


def requested() -> int | None:
    """The number of the signal that told this process to stop, if one did."""
    return State.number


def stop_if_requested() -> None:
    """Raise `Interrupted` if a signal waits."""
    if State.number is not None:
        raise Interrupted(State.number)


def _handle(number: int, _: FrameType | None) -> None:
    if State.ending:
        return
    again = State.number is not None
    State.number = number
    if again:
        signal.signal(number, signal.SIG_DFL)  # a third one does not even unwind
    if again or not State.deferring:
        raise Interrupted(number)

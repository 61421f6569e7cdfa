"""Ctrl-C, SIGTERM and SIGHUP end a command where nothing is lost.

A command calls `interrupt_on_signals` once. From then on each of these signals raises
`KeyboardInterrupt`. Inside `deferred` the first one only sets a flag, so that a run can write a
checkpoint between two epochs; a second one raises at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""The signals that this system has."""
INTERRUPTED = "interrupted; finished work is kept; run the same command again to continue"


class _State:
    received: int | None = None
    deferring = False


def interrupt_on_signals() -> None:
    """Raise `KeyboardInterrupt` on these signals, except those that are ignored, as by `nohup`."""
    _State.received, _State.deferring = None, False
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


def ignore_signals() -> None:
    """Ignore these signals, as a process does that is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def deferred() -> Iterator[None]:
    """Let the first signal wait for the end of the block; the block may ask `received` earlier."""
    _State.received, _State.deferring = None, True
    try:
        yield
    finally:
        _State.deferring = False
    if received() is not None:
        raise KeyboardInterrupt


def received() -> int | None:
    """The number of the signal that this process received, if any."""
    return _State.received


def _handle(number: int, _: FrameType | None) -> None:
    first, _State.received = _State.received is None, number
    if not (first and _State.deferring):
        raise KeyboardInterrupt

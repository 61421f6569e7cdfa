"""Handle Ctrl-C, SIGTERM and SIGHUP so that a command loses no finished work.

A command calls `interrupt_on_signals` once. From then on each of these signals raises
`KeyboardInterrupt`. Inside `deferred` the first signal only sets a flag, so that a run can write a
checkpoint between two epochs. A second signal raises `KeyboardInterrupt` at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""The handled signals that exist on this operating system."""


class _State:
    received: int | None = None
    deferring = False


def interrupt_on_signals() -> None:
    """Raise `KeyboardInterrupt` on these signals; a signal ignored by `nohup` stays ignored."""
    _State.received, _State.deferring = None, False
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


def ignore_signals() -> None:
    """Ignore these signals from now on; for a process that is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def deferred() -> Iterator[None]:
    """Defer the first signal to the end of the block, which can check `received_signal` before."""
    _State.received, _State.deferring = None, True
    try:
        yield
    finally:
        _State.deferring = False
    if received_signal() is not None:
        raise KeyboardInterrupt


def received_signal() -> int | None:
    """Return the number of the signal that this process received; None without a signal."""
    return _State.received


def _handle(number: int, _: FrameType | None) -> None:
    first, _State.received = _State.received is None, number
    if not (first and _State.deferring):
        raise KeyboardInterrupt

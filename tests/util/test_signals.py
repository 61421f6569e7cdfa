"""Signals raise `KeyboardInterrupt` at once, or at the end of a `deferred` block."""

import os
import signal
from collections.abc import Iterator

import pytest

from canet.util.signals import SIGNALS, deferred, interrupt_on_signals, received_signal
from tests.support.commands import usual_signals


@pytest.fixture(autouse=True)
def default_signals() -> Iterator[None]:
    with usual_signals():
        yield


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_raises_a_keyboard_interrupt(number: int) -> None:
    interrupt_on_signals()
    with pytest.raises(KeyboardInterrupt):
        send(number)
    assert received_signal() == number


def test_the_first_signal_waits_for_the_end_of_a_block_and_the_second_does_not() -> None:
    interrupt_on_signals()
    seen = []

    def work() -> None:
        with deferred():
            send(signal.SIGTERM)
            seen.append(received_signal())

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == [signal.SIGTERM]
    with deferred():
        assert received_signal() is None  # the signal of the previous block is forgotten
        send(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        interrupt_on_signals()


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt_on_signals()
    send(signal.SIGHUP)
    assert received_signal() is None

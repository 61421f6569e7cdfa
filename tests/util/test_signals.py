"""Signals raise at once, or wait until a run can stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from canet.util.signals import SIGNALS, deferred, interrupt_on_signals, received
from tests.cli.commands import usual_signals


@pytest.fixture(autouse=True)
def signals_as_usual() -> Iterator[None]:
    with usual_signals():
        yield


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_a_keyboard_interrupt(number: int) -> None:
    interrupt_on_signals()
    with pytest.raises(KeyboardInterrupt):
        send(number)
    assert received() == number


def test_the_first_signal_waits_for_the_end_of_a_block_and_the_second_does_not() -> None:
    interrupt_on_signals()
    seen = []

    def work() -> None:
        with deferred():
            send(signal.SIGTERM)
            seen.append(received())

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == [signal.SIGTERM]
    with deferred():
        assert received() is None  # of an earlier block
        send(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        interrupt_on_signals()


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt_on_signals()
    send(signal.SIGHUP)
    assert received() is None


def test_a_library_that_installs_no_handler_keeps_its_own() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with deferred():
        assert [signal.getsignal(number) for number in SIGNALS] == before

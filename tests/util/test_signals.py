"""Signals that say to stop: raised at once, or remembered until it costs nothing."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator

import pytest

from canet.util.signals import (
    SIGNALS,
    Interrupted,
    State,
    deferred,
    heeded,
    requested,
    stop_if_requested,
)
from tests.cli.test_cli import usual_signals


@pytest.fixture(autouse=True)
def signals_as_usual() -> Iterator[None]:
    with usual_signals():
        yield


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_what_may_end_at_any_moment(number: int) -> None:
    with pytest.raises(Interrupted) as caught, heeded():
        send(number)
    assert caught.value.exit_code == 128 + number
    assert requested() is None


def test_a_deferred_signal_waits_to_be_asked_for() -> None:
    with heeded():
        with deferred():
            send(signal.SIGTERM)
            assert requested() == signal.SIGTERM
        with pytest.raises(Interrupted):
            stop_if_requested()


def test_a_second_signal_does_not_wait() -> None:
    with heeded(), deferred():
        send(signal.SIGTERM)
        with pytest.raises(Interrupted) as caught:
            send(signal.SIGINT)
        assert caught.value.number == signal.SIGINT


def test_signals_change_nothing_once_the_process_is_ending_and_none_is_heard_afterwards() -> None:
    with heeded():
        try:
            send(signal.SIGTERM)
        except Interrupted:
            State.ending = True
            for number in (*SIGNALS, *SIGNALS):
                send(number)
            assert requested() == signal.SIGTERM
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_IGN}
    for number in SIGNALS:
        send(number)


def test_a_signal_that_was_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with heeded():
        send(signal.SIGHUP)
        assert requested() is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_handlers_are_those_of_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with heeded():
        assert all(signal.getsignal(number) not in before for number in SIGNALS)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_outside_the_main_thread_and_in_library_use_nothing_is_installed() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    seen: list[list[object]] = []

    def look() -> None:
        with heeded(), deferred():
            seen.append([signal.getsignal(number) for number in SIGNALS])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    with deferred():
        seen.append([signal.getsignal(number) for number in SIGNALS])
        stop_if_requested()
    assert seen == [before, before]


def test_it_is_no_failure_of_a_job_and_travels_between_processes() -> None:
    told = Interrupted(15, "as the test wants")
    assert not isinstance(told, Exception)
    again = pickle.loads(pickle.dumps(told))
    assert (again.number, str(again)) == (15, "as the test wants")

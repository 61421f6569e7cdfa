"""Progress bars and progress lines of commands."""

import math
import time

import pytest

from canet.util import progress
from canet.util.progress import Display
from tests.support.terminal import Clock, terminal


def test_without_a_terminal_a_line_shows_counts_time_left_and_the_running_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, shown = Clock(monkeypatch), Display(10, done=4)
    assert shown.line == "4/10 runs"
    clock.now += 60
    shown.update(4, running=2, text="cora erm-gcn seed 0")
    assert shown.line == "4/10 runs, 2 running; cora erm-gcn seed 0"
    clock.now += 60
    shown.update(5, running=2, failed=1, text="cora erm-gcn seed 1")
    assert shown.line == "5/10 runs, 2 running, 1 failed; about 5 min left; cora erm-gcn seed 1"
    clock.now += 60
    shown.update(5, running=1, failed=1, part=0.2)
    assert shown.line == "5/10 runs, 1 running, 1 failed; about 8 min left"


def test_the_time_left_counts_down_until_it_is_estimated_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, shown = Clock(monkeypatch), Display(4, quiet=True)
    shown.update(0)
    clock.now += 60
    shown.update(1)
    found = []
    for _ in range(5):
        found.append(shown.time_left)
        clock.now += 50
    assert found == [
        "about 3 min left",
        "about 2 min left",
        "about 80 s left",
        "about 30 s left",
        "longer than estimated",
    ]
    shown.expect(240)
    assert shown.time_left == "about 4 min left"
    shown.expect(math.inf)
    assert shown.time_left == ""


def test_lines_are_printed_while_nothing_is_updated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    with Display(2) as shown:
        shown.update(1, text="first run")
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert {*lines} == {"1/2 runs; first run"}
    assert len(lines) > 1
    time.sleep(0.05)
    assert not capsys.readouterr().err


def test_a_terminal_shows_one_bar_with_counts_and_removes_it_at_the_end() -> None:
    with terminal() as screen, Display(3, done=1, unit="trials") as shown:
        shown.update(2, running=1, text="best valid 81.2", part=0.5)
        assert shown._bar is not None
        assert shown._bar.tasks[0].completed == 2.5
    assert screen.last_bar().startswith("2/3 trials, 1 running ━")
    assert screen.last_bar().endswith("best valid 81.2")
    assert screen.getvalue().endswith("\x1b[1A\x1b[2K")


def test_quiet_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    with terminal() as screen, Display(1, quiet=True) as shown:
        clock.now += 60
        shown.update(1, failed=1)
    assert screen.getvalue() == ""

"""What many jobs show while they run."""

from __future__ import annotations

from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace

import pytest

from canet.runs import progress
from canet.runs.progress import JobProgress
from tests.test_console import Terminal, last_bar

ONE, TWO = Path("one"), Path("two")


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now))


def test_without_a_terminal_a_line_tells_count_time_left_and_score(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with JobProgress(10, done=4, quiet=False).showing() as shown:
        clock.now += 60
        shown.running([ONE], "cora erm-gcn seed 0", 0.0, 50.0)
        clock.now += 60
        shown.ended(ONE, failed=True)
        clock.now += 60
        shown.running([TWO], "cora erm-gcn seed 1", 0.2, 81.23)
        shown.running([TWO], "cora erm-gcn seed 1", 0.3, 82.0)
    assert capsys.readouterr().err.splitlines() == [
        "4/10 jobs; cora erm-gcn seed 0, valid 50.0",
        "5/10 jobs, 1 failed; about 5 min left; cora erm-gcn seed 0, valid 50.0",
        "5/10 jobs, 1 failed; about 8 min left; cora erm-gcn seed 1, valid 81.2",
    ]


def test_job_that_stopped_unfinished_counts_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    shown = JobProgress(2, done=0, quiet=False)
    shown.running([ONE], "one", 0.9, 50.0)
    shown.stopped(ONE)
    clock.now += 60
    shown.waiting(2)
    assert capsys.readouterr().err == "0/2 jobs; waiting for 2 that other processes run\n"


def test_terminal_shows_one_bar_with_count_and_score(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    screen = Terminal()
    with redirect_stderr(screen), JobProgress(3, done=1, quiet=False).showing() as shown:
        shown.ended(ONE, failed=False)
        shown.running([TWO], "cora erm-gcn seed 1", 0.5, 81.23)
        assert shown._bar is not None
        assert shown._bar.tasks[0].completed == 2.5
    assert last_bar(screen).startswith("2/3 jobs ━")
    assert last_bar(screen).endswith("cora erm-gcn seed 1, valid 81.2")


def test_quiet_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with JobProgress(1, done=0, quiet=True).showing() as shown:
        clock.now += 60
        shown.ended(ONE, failed=True)
    assert capsys.readouterr() == ("", "")

"""Slots that do tasks here and in other processes, which die, are replaced and end with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from canet.errors import CanetError
from canet.runs import engine as module
from canet.runs.engine import Engine, Here, Processes, WorkerDied, open_engine
from tests.runs.processes import alive, wait_until


def double(number: int) -> int:
    return 2 * number


def die(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def leave(code: int) -> None:
    os._exit(code)


def threads() -> int:
    import torch

    return torch.get_num_threads()


def write_pid_and_sleep(path: Path) -> None:
    path.with_suffix(".tmp").write_text(str(os.getpid()))
    path.with_suffix(".tmp").rename(path)
    time.sleep(600)


@pytest.fixture(scope="module")
def two() -> object:
    with Processes(2) as engine:
        yield engine


def test_here_a_task_is_done_at_once_and_keeps_its_error() -> None:
    engine = Here()
    assert engine.submit(0, double, 4).result() == 8
    error = engine.submit(0, int, "four").exception()
    assert isinstance(error, ValueError)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal here")
def test_a_hangup_of_the_terminal_does_not_reach_the_process_that_tracks_semaphores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [])  # noqa: E731
    before, when_started = held(), []
    start = lambda: when_started.append(held())  # noqa: E731
    monkeypatch.setattr(module.resource_tracker, "ensure_running", start)
    Processes(2)
    assert when_started == [before | {signal.SIGHUP}]
    assert held() == before


def test_a_slot_has_one_process_of_one_thread_that_stays_warm(two: Engine) -> None:
    first, again, other = (two.submit(slot, os.getpid) for slot in (0, 0, 1))
    assert first.result() == again.result() != os.getpid()
    assert other.result() not in (first.result(), os.getpid())
    assert two.submit(0, threads).result() == 1


def test_an_error_of_a_task_comes_back_and_its_process_stays(two: Engine) -> None:
    before = two.submit(0, os.getpid).result()
    with pytest.raises(ValueError, match="four"):
        two.submit(0, int, "four").result()
    assert two.submit(0, os.getpid).result() == before


@pytest.mark.slow
def test_a_death_is_told_with_its_last_words_and_blamed_on_its_own_task(two: Engine) -> None:
    other, before = two.submit(1, os.getpid).result(), two.submit(0, os.getpid).result()
    with pytest.raises(WorkerDied) as caught:
        two.submit(0, die, "too much to bear").result()
    assert caught.value.lines == ["too much to bear", "worker process ended with SIGKILL"]
    with pytest.raises(WorkerDied, match="ended with exit code 3"):
        two.submit(0, leave, 3).result()
    assert two.submit(0, os.getpid).result() != before
    assert two.submit(1, os.getpid).result() == other


def test_a_renewed_slot_has_another_process(two: Engine) -> None:
    before = two.submit(0, os.getpid).result()
    two.renew(0)
    assert not alive(before)
    assert two.submit(0, os.getpid).result() != before


def test_closing_ends_processes_in_the_middle_of_a_task(tmp_path: Path) -> None:
    with Processes(1) as engine:
        future = engine.submit(0, write_pid_and_sleep, tmp_path / "pid")
        wait_until((tmp_path / "pid").exists)
    assert not alive(int((tmp_path / "pid").read_text()))
    assert isinstance(future.exception(), WorkerDied)


PARENT = """
import sys
from pathlib import Path
from canet.runs.engine import Processes
from tests.runs.test_engine import write_pid_and_sleep

if __name__ == "__main__":
    Processes(1).submit(0, write_pid_and_sleep, Path(sys.argv[1])).result()
"""


@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    path = os.pathsep.join(sys.path)
    command = [sys.executable, str(script), str(tmp_path / "pid")]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}) as parent:
        wait_until((tmp_path / "pid").exists)
        parent.kill()
    worker = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(worker))


def test_an_engine_is_opened_for_so_many_tasks() -> None:
    assert isinstance(open_engine(1), Here)
    assert open_engine(3).size == 3
    with pytest.raises(CanetError, match="give 1 or more"):
        open_engine(0)

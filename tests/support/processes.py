"""Helpers for tests with processes."""

import os
import time
from collections.abc import Callable
from pathlib import Path

TIMEOUT = 300.0


def alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in "ZX"


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true; fail after a timeout."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < TIMEOUT, "timeout"
        time.sleep(0.01)


def write_pid_and_sleep(path: Path) -> None:
    path.with_suffix(".tmp").write_text(str(os.getpid()))
    path.with_suffix(".tmp").rename(path)
    time.sleep(600)

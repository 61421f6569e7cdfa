"""Processes that tests look at, and waiting for what they do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in "ZX"


def wait_until(fact: Callable[[], object]) -> None:
    """Look again and again until something holds, but not forever."""
    begin = time.monotonic()
    while not fact():
        assert time.monotonic() - begin < PATIENCE, "waited in vain"
        time.sleep(0.01)


def write_pid_and_sleep(path: Path) -> None:
    path.with_suffix(".tmp").write_text(str(os.getpid()))
    path.with_suffix(".tmp").rename(path)
    time.sleep(600)

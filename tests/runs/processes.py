"""Child processes that need no second import of torch, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

PATIENCE = 120.0


@contextmanager
def forked(work: Callable[[], object]) -> Iterator[int]:
    """A copy of this process, in a group of its own, that does `work` and ends; its number.

    It ends with code 0, 130 if interrupted, else 1; whatever is left of it afterwards is killed.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            # Threads are not copied: whoever waits for those of OpenMP or oneDNN hangs.
            torch.set_num_threads(1)
            torch.backends.mkldnn.set_flags(False)
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            work()
            code = 0
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        yield pid
    finally:
        if not ended(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def ended(pid: int) -> bool:
    """Whether a child has ended; it stays waited for by nobody."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def exit_code(pid: int) -> int:
    """Wait for a child; its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_until(fact: Callable[[], object]) -> None:
    """Look again and again until something holds, but not forever."""
    begin = time.monotonic()
    while not fact():
        assert time.monotonic() - begin < PATIENCE, "waited in vain"
        time.sleep(0.01)

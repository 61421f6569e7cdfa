"""Pools of worker processes on this machine (loky)."""

import os
import pickle
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.backend.reduction import dump

from canet.util.files import write_errors

T = TypeVar("T")
SECONDS_BETWEEN_CHECKS = 1.0


class Processes(AbstractContextManager):
    """A pool of worker processes, which is created again if one of them dies.

    When the context ends, the processes are killed, even if a task is running. Each uses this
    number of torch `threads` and keeps freed memory; None leaves the defaults.
    """

    remote = False

    def __init__(self, size: int, threads: int | None = 1) -> None:
        self.size = size
        self._threads = threads
        self._executor = self._new_executor()
        self._shared = tempfile.TemporaryDirectory(prefix="canet-", ignore_cleanup_errors=True)
        self._num_shared = 0
        # loky restarts a process whose memory has grown, for example after a large graph.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)

    def share(self, value: T) -> Callable[[], T]:
        """Write a value to a temporary file; return a function that reads it once per process."""
        path = Path(self._shared.name) / str(self._num_shared)
        self._num_shared += 1
        with write_errors(path), path.open("wb") as file:
            dump(value, file)
        return partial(_read_shared, path)

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        with _terminal_signals_blocked():
            try:
                return self._executor.submit(function, *arguments)
            except BrokenExecutor:
                self._executor = self._new_executor()
                return self._executor.submit(function, *arguments)

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(kill_workers=True)
        self._shared.cleanup()

    def _new_executor(self) -> Any:
        return ProcessPoolExecutor(
            self.size, initializer=_initialise_worker, initargs=(os.getpid(), self._threads)
        )


def worker_exit_reason(error: BrokenExecutor) -> str:
    """Return the line with the exit code: `The exit codes of the workers are {SIGKILL(-9)}`."""
    lines = str(error).splitlines()
    return next((line for line in lines if "exit code" in line), lines[0] if lines else "")


def end_with_parent(parent: int) -> None:
    """Exit this process when its parent process has ended, even if a task is running."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_CHECKS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@lru_cache(maxsize=1)
def _read_shared(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)


def _initialise_worker(parent: int, threads: int | None) -> None:
    end_with_parent(parent)
    if threads is not None:
        import torch

        from canet.util.memory import keep_freed_memory

        keep_freed_memory()
        torch.set_num_threads(threads)


@contextmanager
def _terminal_signals_blocked() -> Iterator[None]:
    """Let processes started in the block ignore Ctrl-C and SIGHUP, because the parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

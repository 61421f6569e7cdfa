"""Pools of worker processes on this machine (loky)."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar

from joblib.externals.loky import ProcessPoolExecutor

from canet.errors import CanetError

T = TypeVar("T")
Task = TypeVar("Task")
SECONDS_BETWEEN_CHECKS = 1.0


class Pool(Protocol):
    """Runs functions in other processes, `size` at a time.

    If the process or machine of a function dies, its future raises a `BrokenExecutor`. If `remote`,
    functions may run on another machine, which cannot read the files of this machine.
    """

    size: int
    remote: bool

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]: ...

    def __enter__(self) -> Pool: ...

    def __exit__(self, *_: object) -> None: ...


class Processes:
    """A pool of worker processes, which is created again if one of them dies.

    When the context ends, the processes are killed, even if a task is running.

    Args:
        size: Number of processes.
        threads: Torch threads of each process, which then also keeps freed memory. None leaves
            the defaults.
    """

    remote = False

    def __init__(self, size: int, threads: int | None = 1) -> None:
        self.size = size
        self._threads = threads
        self._executor = self._new_executor()
        # loky restarts a process whose memory has grown, for example after a large graph.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        with _terminal_signals_blocked():
            try:
                future: Future[T] = self._executor.submit(function, *arguments)
            except BrokenExecutor:
                self._executor = self._new_executor()
                future = self._executor.submit(function, *arguments)
        return future

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(kill_workers=True)

    def _new_executor(self) -> Any:
        return ProcessPoolExecutor(
            self.size, initializer=_initialise_worker, initargs=(os.getpid(), self._threads)
        )


def open_pool(jobs: int, ray: str | None = None, device: str = "auto") -> Pool | None:
    """Return a pool of worker processes or of a Ray cluster; None if this process does the work.

    Args:
        jobs: Number of tasks that run at the same time. With 1 and no cluster, no pool is needed.
        ray: Address of a Ray cluster, or `auto`; None for worker processes on this machine.
        device: `auto`, `cpu` or `cuda`; a cluster reserves a share of it for each task.
    """
    if jobs < 1:
        raise CanetError(f"jobs is {jobs}, but it must be 1 or more")
    if ray is not None:
        from canet.util.ray import Cluster

        return Cluster(ray, jobs, device)
    return None if jobs == 1 else Processes(jobs)


def run_all(
    pool: Pool, tasks: Iterable[Task], start: Callable[[Task], Future[T]]
) -> Iterator[tuple[Task, Future[T]]]:
    """Yield each task with its finished future, in the order in which the tasks finish.

    The next task is taken from `tasks` only when the pool can start it.
    """
    remaining = iter(tasks)
    running: dict[Future[T], Task] = {}
    while True:
        for task in islice(remaining, pool.size - len(running)):
            running[start(task)] = task
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future


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


def _initialise_worker(parent: int, threads: int | None) -> None:
    """Initialise a worker process."""
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

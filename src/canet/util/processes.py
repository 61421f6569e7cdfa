"""Worker processes of this machine, by loky."""

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
    """Runs functions elsewhere, `size` at a time.

    A function whose process or machine died ends with a `BrokenExecutor`. `remote`: functions may
    run on another machine, which does not see the files of this one.
    """

    size: int
    remote: bool

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]: ...

    def __enter__(self) -> Pool: ...

    def __exit__(self, *_: object) -> None: ...


class Processes:
    """A pool of worker processes, replaced by a new one after one of them died.

    The end of the context kills the processes, also in the middle of a task.

    Args:
        size: Number of processes.
        threads: Threads of torch in each, which then also keep freed memory; None: as usual.
    """

    remote = False

    def __init__(self, size: int, threads: int | None = 1) -> None:
        self.size = size
        self._threads = threads
        self._executor = self._new_executor()
        # loky replaces a process that has grown much, as after a larger graph.
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
            self.size, initializer=_begin, initargs=(os.getpid(), self._threads)
        )


def open_pool(jobs: int, ray: str | None = None, device: str = "auto") -> Pool | None:
    """Where so many tasks run at a time: worker processes or a Ray cluster; None: this process.

    Args:
        jobs: Tasks at a time; 1 without a cluster means this process.
        ray: Address of a Ray cluster, or `auto`; None for this machine alone.
        device: `auto`, `cpu` or `cuda`, of which a cluster gives each task its share.
    """
    if jobs < 1:
        raise CanetError(f"jobs is {jobs}: give 1 or more")
    if ray is not None:
        from canet.util.ray import Cluster

        return Cluster(ray, jobs, device)
    return None if jobs == 1 else Processes(jobs)


def run_all(
    pool: Pool, tasks: Iterable[Task], start: Callable[[Task], Future[T]]
) -> Iterator[tuple[Task, Future[T]]]:
    """Each task with its finished future, in the order in which they end.

    The next task is taken from `tasks` only when the pool has room for it.
    """
    left = iter(tasks)
    running: dict[Future[T], Task] = {}
    while True:
        for task in islice(left, pool.size - len(running)):
            running[start(task)] = task
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future


def cause_of_death(error: BrokenExecutor) -> str:
    """The line that says how a worker ended: `The exit codes of the workers are {SIGKILL(-9)}`."""
    lines = str(error).splitlines()
    return next((line for line in lines if "exit code" in line), lines[0] if lines else "")


def end_with_parent(parent: int) -> None:
    """End this process as soon as its parent has ended, even in the middle of a task."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_CHECKS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _begin(parent: int, threads: int | None) -> None:
    """The first thing that a worker process does."""
    end_with_parent(parent)
    if threads is not None:
        import torch

        from canet.util.memory import keep_freed_memory

        keep_freed_memory()
        torch.set_num_threads(threads)


@contextmanager
def _terminal_signals_blocked() -> Iterator[None]:
    """Processes that start in the block ignore Ctrl-C and SIGHUP: the parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""Where work is done: in this process, or in worker processes that each have one task at a time.

An engine has slots; a slot does one task after the other and stays warm in between. Whoever uses it
gives a task to a slot and waits for its future, as in `concurrent.futures`. A task whose process
dies ends with `WorkerDied`, and the slot has a new process for the next.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, TypeVar

from canet.errors import CanetError
from canet.util.signals import SIGNALS, ignore_signals, interrupt_on_signals

T = TypeVar("T")
LINES_OF_FAILURE = 12
SECONDS_TO_STOP = 60.0  # that a worker has to keep what it did


class WorkerDied(Exception):
    """A worker process ended in the middle of its task.

    Args:
        lines: The last lines that it wrote to standard error, and how it ended.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines[-1])
        self.lines = list(lines)


class Engine(ABC):
    """Slots that do tasks; as a context it ends its processes at the end.

    `size` is the number of slots. `remote` tells that tasks may run on another machine, so that
    they must not count on files of this one.
    """

    size: int
    remote = False

    @abstractmethod
    def submit(self, slot: int, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Start a function of a module in a free slot; both its ends must be picklable."""

    def renew(self, slot: int) -> None:  # noqa: B027
        """Give a free slot a new process, where the one it has may be unsound."""

    def interrupt(self) -> None:  # noqa: B027
        """Have tasks that are under way keep what they have and end; wait until they did."""

    def close(self) -> None:  # noqa: B027
        """End the workers, in the middle of a task too."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if isinstance(error, KeyboardInterrupt):
                self.interrupt()
        finally:
            self.close()


class Here(Engine):
    """One slot in this process: a task is done when `submit` returns."""

    size = 1

    def submit(self, slot: int, function: Callable[..., T], *arguments: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


class Processes(Engine):
    """Worker processes of this machine, each with one thread unless told otherwise.

    Args:
        size: Number of worker processes at most; each starts with its first task.
        threads: Threads of each, which then also keep freed memory; None leaves processes as the
            system makes them.
    """

    def __init__(self, size: int, threads: int | None = 1) -> None:
        _start_tracker()
        self.size = size
        self._slots = [_Slot(threads) for _ in range(size)]

    def submit(self, slot: int, function: Callable[..., T], *arguments: Any) -> Future[T]:
        return self._slots[slot].submit(function, *arguments)

    def renew(self, slot: int) -> None:
        self._slots[slot].kill()

    def interrupt(self) -> None:
        tasks = [task for slot in self._slots if (task := slot.interrupt())]
        wait(tasks, SECONDS_TO_STOP)

    def close(self) -> None:
        for slot in self._slots:
            slot.kill()


class _Slot:
    """An executor with one process, replaced when that dies."""

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._executor: ProcessPoolExecutor | None = None
        self._errors: Any = None
        self._task: Future[Any] | None = None
        self._told_to_stop = False
        self._context = _Context()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        if self._told_to_stop:
            self.kill()
        if self._executor is None:
            self._errors = tempfile.NamedTemporaryFile(prefix="canet-")  # noqa: SIM115 - as long
            self._executor = ProcessPoolExecutor(
                1, self._context, _begin, (self._errors.name, self._threads)
            )
        answer: Future[T] = Future()
        self._task = answer
        with _signals_held():  # they reach a new process when it knows what to do with them
            task = self._executor.submit(function, *arguments)
        task.add_done_callback(lambda done: self._pass_on(done, answer))
        return answer

    def interrupt(self) -> Future[Any] | None:
        """Ask the process to end its task; the task, if there is one."""
        if self._executor is None or self._task is None or self._task.done():
            return None
        for process in self._context.started:
            process.terminate()
        return self._task

    def kill(self) -> None:
        """End the process at once."""
        if self._executor is not None:
            executor, self._executor, self._told_to_stop = self._executor, None, False
            for process in self._context.started:
                process.kill()
            executor.shutdown(wait=True, cancel_futures=True)
            self._forget()

    def _pass_on(self, done: Future[T], answer: Future[T]) -> None:
        error = done.exception()
        if isinstance(error, BrokenProcessPool):
            error = WorkerDied(self._last_lines())
            self._executor = None
            self._forget()
        elif isinstance(error, KeyboardInterrupt):
            self._told_to_stop = True
            error = WorkerDied(["worker process was stopped by SIGTERM"])
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(done.result())

    def _last_lines(self) -> list[str]:
        lines = Path(self._errors.name).read_text(errors="replace").splitlines()
        (process,) = self._context.started
        process.join()
        code = process.exitcode or 0
        end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return [*lines[-LINES_OF_FAILURE:], f"worker process ended with {end}"]

    def _forget(self) -> None:
        self._context.started.clear()
        self._errors.close()


class _Context(SpawnContext):
    """Starts processes, and remembers them: an executor does not tell how one ended."""

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]
        process = SpawnProcess(*arguments, **options)
        self.started.append(process)
        return process


def _begin(errors: str, threads: int | None) -> None:
    """The first thing that a worker process does."""
    ignore_signals()  # what a terminal sends is for the parent
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    interrupt_on_signals([signal.SIGTERM])
    with open(errors, "ab") as file:
        os.dup2(file.fileno(), 2)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if threads is not None:
        import torch

        from canet.util.memory import keep_freed_memory

        keep_freed_memory()
        torch.set_num_threads(threads)


def _start_tracker() -> None:
    """Start Python's process that tracks semaphores, which a hangup of the terminal would end.

    The other signals it ignores by itself. This one it inherits as held, for good.
    """
    if not hasattr(signal, "SIGHUP"):
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Let signals wait for the end of the block, and in a process that is started there longer."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # or else it starts inside the block, and ends the wait
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # in the middle of a task, too


def open_engine(jobs: int, ray: str | None = None, device: str = "auto") -> Engine:
    """The engine for so many tasks at a time: here, in worker processes, or on a Ray cluster.

    Args:
        jobs: Tasks at a time; 1 does them in this process.
        ray: Address of a Ray cluster, or `auto`; None for this machine alone.
        device: `auto`, `cpu` or `cuda`, of which a cluster gives each task its share.
    """
    if jobs < 1:
        raise CanetError(f"{jobs} jobs at a time get nothing done: give 1 or more")
    if ray is not None:
        from canet.runs.ray import Cluster

        return Cluster(ray, jobs, device)
    return Here() if jobs == 1 else Processes(jobs)

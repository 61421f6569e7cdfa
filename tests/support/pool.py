"""A pool in this process, whose workers die as a test wants."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from typing import Any


class LocalPool:
    """Calls functions at once.

    Args:
        size: Number of jobs at a time.
        remote: Whether jobs get no folder of this machine.
        dies: Whether the worker dies, from a job and the number of earlier jobs.
    """

    def __init__(
        self,
        size: int = 2,
        remote: bool = False,
        dies: Callable[[Any, int], bool] = lambda job, number: False,
    ) -> None:
        self.size, self.remote, self._dies = size, remote, dies
        self.jobs: list[Any] = []

    def share(self, value: Any) -> Callable[[], Any]:
        return lambda: value

    def submit(self, call: Any, function: Any, shared: Any, job: Any, root: Any) -> Future[Any]:
        self.jobs.append(job)
        future: Future[Any] = Future()
        if self._dies(job, len(self.jobs) - 1):
            future.set_exception(BrokenExecutor("SIGKILL"))
        else:
            future.set_result(call(function, shared, job, root))
        return future

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

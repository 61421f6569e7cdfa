"""Measure in another process, one job after the other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from typing import Any

from benchmarks.worker import Job, Order, work
from canet.util.processes import Processes, worker_exit_reason


def measure_jobs(jobs: list[Job], order: Order) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yield each job with its result, in order, from one process.

    If the process ends during a job, the job is reported as `died` and a new process does the rest.
    """
    with Processes(1, threads=None) as pool:
        for job in jobs:
            try:
                yield job, pool.submit(work, job, order).result()
            except BrokenExecutor as error:
                yield job, {"died": worker_exit_reason(error)}

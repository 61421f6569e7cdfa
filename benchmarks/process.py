"""Measure in a process apart: one job after the other, and why it ended where it did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.worker import Job, Order, work
from canet.runs.engine import Processes, WorkerDied


def measure_jobs(jobs: list[Job], order: Order) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Each job with its result, in order, from one process.

    A job during which its process ends is told as `died`, and another process does the rest.
    """
    with Processes(1, threads=None) as engine:
        for job in jobs:
            try:
                yield job, engine.submit(0, work, job, order).result()
            except WorkerDied as death:
                *_, reason = death.lines[:-1] or death.lines
                yield job, {"died": reason}

"""Several worker processes; each of them may die, and so may the process that started them."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from canet.errors import CanetError
from canet.runs.claims import release_if_dead, take_claim
from canet.runs.schedule import Job, Schedule
from canet.runs.worker import LINES_OF_FAILURE, is_over, write_failure

POLL_SECONDS = 1.0
STOP_SECONDS = 5.0
MOST_DEATHS = 2  # of workers at one job, or before their first
WORK = "from canet.runs.worker import main; main()"
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}

Events = queue.SimpleQueue[tuple["Worker", dict[str, Any] | None]]


class Worker:
    """A worker process, seen from the one that started it.

    Args:
        order: What holds for all its jobs: root, device and data root.
        events: Where its messages go, each with the worker; None tells that it ended.
    """

    def __init__(self, order: dict[str, Any], events: Events) -> None:
        self.jobs: list[Job] = []
        self.last: Job | None = None
        self.ready = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", WORK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(sys.path)},
            process_group=0,  # Ctrl-C reaches the parent alone
        )
        self._listener = threading.Thread(target=self._listen, args=(events,), daemon=True)
        self._listener.start()
        self._send(order)

    def give(self, jobs: list[Job]) -> None:
        self.jobs, self.last = jobs, jobs[0]
        self._send([asdict(job.config) for job in jobs])

    def stop(self) -> None:
        """Let the process end, at once and in the middle of a job too."""
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(self) -> list[str]:
        """Wait for the end of the process, not for long; how it ended and its last lines."""
        self.stop()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._listener.join()
        for job in self.jobs:
            release_if_dead(job.place.path)
        with self._errors as file:
            file.seek(0)
            lines = file.read().decode(errors="replace").splitlines()
        end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return [*lines[-LINES_OF_FAILURE:], f"worker process ended with {end}"]

    def _send(self, order: Any) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # its end is told by the listener
            print(json.dumps(order), file=self._process.stdin, flush=True)

    def _listen(self, events: Events) -> None:
        assert self._process.stdout
        with self._process.stdout as messages:
            for line in messages:
                if line.endswith("\n"):  # else torn by the end of the process
                    events.put((self, json.loads(line)))
        events.put((self, None))


class Pool:
    """Worker processes that share a schedule.

    Args:
        schedule: The jobs.
        size: Number of worker processes at most.
        order: What holds for all jobs: root, device and data root.
    """

    def __init__(self, schedule: Schedule, size: int, order: dict[str, Any]) -> None:
        self._schedule, self._size, self._order = schedule, size, order
        self._workers: list[Worker] = []
        self._events: Events = queue.SimpleQueue()
        self._deaths: Counter[Path] = Counter()
        self._false_starts = 0

    def run(self) -> None:
        """Run until every job is finished or has failed."""
        look = 0.0
        try:
            while not self._schedule.complete:
                if time.monotonic() >= look:
                    self._start_jobs()
                    look = time.monotonic() + POLL_SECONDS
                with suppress(queue.Empty):
                    worker, message = self._events.get(timeout=POLL_SECONDS)
                    if self._heard(worker, message):
                        look = 0.0
        finally:
            for worker in self._workers:
                worker.stop()
            for worker in self._workers:
                worker.wait()

    def _start_jobs(self) -> None:
        for worker in self._workers:
            if not worker.jobs and (jobs := self._schedule.start(worker.last)):
                worker.give(jobs)
        while len(self._workers) < self._size and (jobs := self._schedule.start(None)):
            worker = Worker(self._order, self._events)
            self._workers.append(worker)
            worker.give(jobs)

    def _heard(self, worker: Worker, message: dict[str, Any] | None) -> bool:
        """Act on a message; whether jobs may be started now."""
        if worker not in self._workers:
            return False
        if message is None:
            self._bury(worker)
        elif "ready" in message:
            worker.ready, self._false_starts = True, 0
            return False
        elif "fraction" in message:
            self._schedule.reached(worker.jobs, message["fraction"], message["score"])
            return False
        else:
            self._schedule.stopped(worker.jobs)
            worker.jobs = []
            if not message["sound"]:
                self._workers.remove(worker)
                worker.wait()
        return True

    def _bury(self, worker: Worker) -> None:
        """A worker died: its jobs are for another one, unless it is the job that kills them."""
        self._workers.remove(worker)
        lines = worker.wait()
        if not worker.ready:
            self._false_starts += 1
            if self._false_starts >= MOST_DEATHS:
                raise CanetError(f"worker processes cannot start: {' '.join(lines[-2:])}")
        else:
            for job in worker.jobs:
                self._deaths[job.place.path] += 1
                if self._deaths[job.place.path] >= MOST_DEATHS:
                    _give_up(job, lines)
        self._schedule.stopped(worker.jobs, died=worker.ready)


def _give_up(job: Job, lines: list[str]) -> None:
    claim = take_claim(job.place.path)
    if claim is None:
        return  # another process tries
    with claim:
        if not is_over(job.place):
            write_failure(job.place, lines)

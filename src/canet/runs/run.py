"""Run jobs until each is finished or has failed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from canet.errors import CanetError
from canet.methods import get_method
from canet.runs.pool import POLL_SECONDS, Pool
from canet.runs.schedule import Job, Schedule
from canet.runs.worker import FAILURE, JobRunner, job_folder
from canet.training import RunConfig
from canet.training.loop import Progress
from canet.training.trainer import pick_device

SEEDS_AT_ONCE = 5  # on a GPU, which one run of most tasks leaves idle


@dataclass(frozen=True)
class FailedJob:
    """A job that failed, and the last lines it left."""

    config: RunConfig
    lines: list[str]


def run_jobs(
    configs: Sequence[RunConfig],
    root: Path,
    jobs: int = 1,
    device: str = "auto",
    data_root: Path | None = None,
    retry: bool = False,
    quiet: bool = False,
) -> list[FailedJob]:
    """Run every job that is not finished yet; return when each is finished or has failed.

    Jobs that other processes work on are waited for, and taken over if those die.

    Args:
        configs: The jobs, in the order in which to start them.
        root: Folder of all jobs, which other processes and machines may share.
        jobs: Number of worker processes, each with one thread; 1 runs them in this process.
        device: `auto`, `cpu` or `cuda`; workers share one GPU.
        data_root: Folder with raw data.
        retry: Run failed jobs again.
        quiet: Show no progress.
    """
    on_gpu = pick_device(device).type == "cuda"
    if jobs < 1:
        raise CanetError(f"{jobs} jobs at a time get nothing done: give 1 or more")
    every = [_job(config, root, on_gpu) for config in configs]
    if retry:
        for job in every:
            (job.place.path / FAILURE).unlink(missing_ok=True)
    schedule = Schedule(every, quiet)
    with schedule.progress.showing():
        if jobs == 1:
            _run_here(schedule, JobRunner(root, device, data_root))
        else:
            order = {"root": str(root), "device": device, "data_root": data_root and str(data_root)}
            Pool(schedule, jobs, order).run()
    return [FailedJob(job.config, lines) for job, lines in schedule.failures()]


def _job(config: RunConfig, root: Path, on_gpu: bool) -> Job:
    together = on_gpu and get_method(config.method).capturable
    place = job_folder(root, config)
    return Job(config, config.name, place, SEEDS_AT_ONCE if together else 1)


def _run_here(schedule: Schedule, runner: JobRunner) -> None:
    last: Job | None = None
    while not schedule.complete:
        jobs = schedule.start(last)
        if jobs:
            runner.run([job.config for job in jobs], _reporter(schedule, jobs))
            schedule.stopped(jobs)
            last = jobs[0]
        elif not schedule.complete:
            time.sleep(POLL_SECONDS)


def _reporter(schedule: Schedule, jobs: Sequence[Job]) -> Progress:
    def report(done: int, total: int, score: float) -> None:
        schedule.reached(jobs, done / total, score)

    return report

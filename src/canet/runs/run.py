"""Many runs: each that is not finished is trained, and each that fails leaves the reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from canet.data.task import ShiftTask
from canet.errors import InputWarning
from canet.methods import Auto, describe_method
from canet.runs.data import compare_data
from canet.runs.worker import (
    FAILURE,
    Outcome,
    Worker,
    job_folder,
    train_elsewhere,
    train_in_process,
    write_files,
)
from canet.store import RunConfig, RunFolder
from canet.training.trainer import pick_device
from canet.util.files import read_json, write_json
from canet.util.locks import exclusive_lock
from canet.util.processes import Pool, worker_exit_reason, open_pool, run_all
from canet.util.progress import Display

SEEDS_AT_ONCE = 5  # on a GPU, which one run of most tasks leaves idle


@dataclass(frozen=True)
class FailedJob:
    """A run that failed, and the last lines it left."""

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
    ray: str | None = None,
    task: ShiftTask | None = None,
) -> list[FailedJob]:
    """Train every run that is not finished yet; return when each is finished or has failed.

    Finished runs on other data than there is now are rejected with an error.

    Args:
        configs: The runs.
        root: Folder of all of them. If another command works there, this one waits for it.
        jobs: Runs at a time: worker processes with one thread each; 1 trains in this process.
        device: `auto`, `cpu` or `cuda`; workers share one GPU.
        data_root: Folder with raw data, on every machine that trains.
        retry: Train failed runs again.
        quiet: Show no progress.
        ray: Address of a Ray cluster that trains, or `auto`.
        task: The task of all runs, where it is loaded already.
    """
    together = ray is None and pick_device(device).type == "cuda"
    names = {config.name for config in configs}
    configs = [*{(config.name, config.seed): config for config in configs}.values()]
    places = [job_folder(root, config) for config in configs]
    pool = open_pool(jobs, ray, device)
    folder = root / names.pop() if len(names) == 1 else root
    with pool or nullcontext(), exclusive_lock(folder, quiet):
        compare_data(places, data_root, quiet, task)
        if retry:
            for place in places:
                (place.path / FAILURE).unlink(missing_ok=True)
        runs = _Runs(configs, root)
        batches = in_batches(runs.left, together)
        with Display(len(configs), runs.num_over, "runs", quiet) as display:
            if pool:
                runs.train_in(pool, batches, device, data_root, display)
            else:
                worker = Worker(device, data_root, task)
                for batch in batches:
                    counts = runs.num_over, len(batch), len(runs.failed)
                    unit = "training" if batch[0].method == Auto.name else "epoch"
                    report = display.training_callback(label(batch), *counts, unit)
                    runs.settle(batch, worker.train(batch, root, report))
    return [*runs.failed.values()]


def in_batches(configs: Sequence[RunConfig], together: bool) -> Iterator[list[RunConfig]]:
    """Runs in an order in which neighbours share their task and trainer, one or several at a time.

    Args:
        configs: The runs.
        together: Whether runs that differ in their seed alone may be trained side by side.
    """
    groups: dict[tuple[object, ...], dict[str, list[RunConfig]]] = {}
    for config in configs:
        groups.setdefault(config.task_key, {}).setdefault(config.name, []).append(config)
    for by_name in groups.values():
        for runs in by_name.values():
            size = SEEDS_AT_ONCE if together and describe_method(runs[0].method).capturable else 1
            for begin in range(0, len(runs), size):
                yield runs[begin : begin + size]


def read_failure(place: RunFolder) -> list[str] | None:
    """The last lines of a failed run; None if it has not failed."""
    try:
        lines = read_json(place.path / FAILURE)["lines"]
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, RecursionError):
        lines = None
    if not isinstance(lines, list) or not lines or not all(isinstance(n, str) for n in lines):
        return [f"'{place.path / FAILURE}' is not readable: --retry runs the job again"]
    return lines


class _Runs:
    """The runs of one folder: which are left, and which have failed."""

    def __init__(self, configs: Sequence[RunConfig], root: Path) -> None:
        self._root = root
        self._num_runs = len(configs)
        self.failed: dict[Path, FailedJob] = {}
        self.left: list[RunConfig] = []
        for config in configs:
            place = job_folder(root, config)
            if place.finished:
                continue
            if (lines := read_failure(place)) is None:
                self.left.append(config)
            else:
                self.failed[place.path] = FailedJob(config, lines)

    @property
    def num_over(self) -> int:
        """Runs that are finished or have failed."""
        return self._num_runs - len(self.left)

    def train_in(
        self,
        pool: Pool,
        batches: Iterator[list[RunConfig]],
        device: str,
        data_root: Path | None,
        display: Display,
    ) -> None:
        """Train in a pool. Runs of a worker that died are tried once more, one at a time."""

        def start(batch: list[RunConfig]) -> Future[Outcome]:
            display.update(self.num_over, pool.size, len(self.failed), label(batch))
            if pool.remote:
                return pool.submit(train_elsewhere, batch, device, data_root)
            return pool.submit(train_in_process, batch, self._root, device, data_root)

        again: list[RunConfig] = []
        for batch, future in run_all(pool, batches, start):
            try:
                self.settle(batch, future.result())
            except BrokenExecutor:
                again += batch
        for config in again:
            try:
                self.settle([config], start([config]).result())
            except BrokenExecutor as error:
                lines = ["a worker died twice at this run", worker_exit_reason(error)]
                self.settle([config], Outcome({config.seed: lines}))

    def settle(self, batch: Sequence[RunConfig], outcome: Outcome) -> None:
        """Runs are finished or have failed."""
        for remark in outcome.remarks:
            warnings.warn(remark, InputWarning, stacklevel=2)
        for config in batch:
            place = job_folder(self._root, config)
            if files := outcome.files.get(config.seed):
                write_files(place, files)
            lines = outcome.failures.get(config.seed)
            if lines and not place.finished:
                write_json(place.path / FAILURE, {"lines": lines})
                self.failed[place.path] = FailedJob(config, lines)
            self.left.remove(config)


def label(configs: Sequence[RunConfig]) -> str:
    """What runs that differ in their seed alone are called."""
    config = configs[0]
    seeds = ", ".join(str(config.seed) for config in configs)
    return f"{config.task} {config.model} seed {seeds}"

"""Train all unfinished runs and record the failures."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from canet.data.task import ShiftTask
from canet.errors import InputError, warn_user
from canet.models import describe_method, is_network
from canet.runs.evaluate import compare_data
from canet.runs.worker import FAILURE, Outcome, Worker, job_folder
from canet.store import RunConfig, RunFolder
from canet.training.loop import Progress, progress_text
from canet.util import distributed
from canet.util.devices import pick_device
from canet.util.files import read_json, write_json
from canet.util.jobs import Pool, WorkerDied, open_pool, run_all
from canet.util.locks import exclusive_lock
from canet.util.progress import Display

SEEDS_AT_ONCE = 5
"""Runs that are trained together on a GPU, because one run of most tasks leaves it idle."""


@dataclass(frozen=True)
class FailedJob:
    """A failed run and the last lines of its error."""

    config: RunConfig
    lines: list[str]


def run_jobs(
    configs: Sequence[RunConfig],
    root: Path,
    *,
    jobs: int = 1,
    device: str = "auto",
    data_root: Path | None = None,
    retry: bool = False,
    quiet: bool = False,
    ray: str | None = None,
    task: ShiftTask | None = None,
) -> list[FailedJob]:
    """Train every unfinished run; return the runs that failed.

    Finished runs that were trained on other data are rejected with an error.

    Args:
        configs: The runs.
        root: Folder of all runs. If another command is using it, this one waits.
        jobs: Number of worker processes with one thread each; 1 trains in this process.
        device: `auto`, `cpu` or `cuda`; workers share one GPU.
        data_root: Folder with raw data, on every machine that trains.
        retry: Train failed runs again.
        quiet: Show no progress.
        ray: Address of a Ray cluster for training, or `auto`.
        task: The task of all runs, if it is already loaded.
    """
    names = {config.name for config in configs}
    is_alone = distributed.world_size() == 1
    network = is_network(configs[0].method)
    if not is_alone and (jobs > 1 or ray or len(names) > 1 or not network):
        raise InputError(
            "processes that were started by torchrun or srun train one model together: leave out "
            "--jobs and --ray, and choose one network"
        )
    worker = Worker(device, data_root, task)
    if distributed.rank():
        worker.follow(configs)
        return []
    batch_seeds = is_alone and ray is None and pick_device(device).type == "cuda"
    configs = [*{(config.name, config.seed): config for config in configs}.values()]
    folders = [job_folder(root, config) for config in configs]
    pool = open_pool(jobs, ray, device)
    locked = root / names.pop() if len(names) == 1 else root
    with pool or nullcontext(), exclusive_lock(locked, quiet):
        compare_data(folders, data_root, quiet, task)
        if retry:
            for folder in folders:
                (folder.path / FAILURE).unlink(missing_ok=True)
        runs = _Runs(configs, root)
        batches = make_batches(runs.pending, batch_seeds)
        with Display(len(configs), runs.num_done, "runs", quiet) as display:
            if pool:
                runs.train_in(pool, worker, batches, display)
            else:
                for batch in batches:
                    report = runs.progress(batch, display)
                    runs.record_outcome(batch, worker.train(batch, root, report))
                worker.end()
    return [*runs.failed.values()]


def make_batches(configs: Sequence[RunConfig], batch_seeds: bool) -> Iterator[list[RunConfig]]:
    """Yield batches of runs, ordered so that successive batches share task and trainer if possible.

    With `batch_seeds`, runs that differ only in their seed may be trained together.
    """
    groups: dict[tuple[object, ...], dict[str, list[RunConfig]]] = {}
    for config in configs:
        groups.setdefault(config.task_key, {}).setdefault(config.name, []).append(config)
    for by_name in groups.values():
        for runs in by_name.values():
            can_batch = batch_seeds and describe_method(runs[0].method).traits.capturable
            size = SEEDS_AT_ONCE if can_batch else 1
            for begin in range(0, len(runs), size):
                yield runs[begin : begin + size]


def read_failure(folder: RunFolder) -> list[str] | None:
    """Return the last lines of a failed run; None if it has not failed."""
    path = folder.path / FAILURE
    return read_json(path)["lines"] if path.exists() else None


class _Runs:
    """The pending and failed runs of a folder."""

    def __init__(self, configs: Sequence[RunConfig], root: Path) -> None:
        self._root = root
        self._num_runs = len(configs)
        self.failed: dict[Path, FailedJob] = {}
        self.pending: list[RunConfig] = []
        for config in configs:
            folder = job_folder(root, config)
            if folder.finished:
                continue
            if (lines := read_failure(folder)) is None:
                self.pending.append(config)
            else:
                self.failed[folder.path] = FailedJob(config, lines)

    @property
    def num_done(self) -> int:
        """Number of runs that are finished or have failed."""
        return self._num_runs - len(self.pending)

    def progress(self, batch: Sequence[RunConfig], display: Display) -> Progress:
        """Return a callback that shows the progress of runs that are trained together."""
        counts = self.num_done, len(batch), len(self.failed)
        unit = "epoch" if is_network(batch[0].method) else "step"

        def report(step: int, total: int, score: float) -> None:
            text = f"{label(batch)}: {progress_text(unit, step, total, score)}"
            display.update(*counts, text, part=len(batch) * step / total)

        return report

    def train_in(
        self, pool: Pool, worker: Worker, batches: Iterable[list[RunConfig]], display: Display
    ) -> None:
        """Train in a pool; if a batch fails because its worker dies, train each of its runs."""

        def started() -> Iterator[list[RunConfig]]:
            for batch in batches:
                display.update(self.num_done, pool.size, len(self.failed), label(batch))
                yield batch

        for batch, found in run_all(pool, Worker.train, started(), shared=worker, root=self._root):
            if not isinstance(found, WorkerDied):
                self.record_outcome(batch, found)
            elif len(batch) == 1:
                self.record_outcome(batch, Outcome({batch[0].seed: [str(found)]}))
            else:
                self.train_in(pool, worker, [[config] for config in batch], display)

    def record_outcome(self, batch: Sequence[RunConfig], outcome: Outcome) -> None:
        """Record the outcome of runs: write failures."""
        for message in outcome.warnings:
            warn_user(message)
        for config in batch:
            folder = job_folder(self._root, config)
            lines = outcome.failures.get(config.seed)
            if lines and not folder.finished:
                write_json(folder.path / FAILURE, {"lines": lines})
                self.failed[folder.path] = FailedJob(config, lines)
            self.pending.remove(config)


def label(configs: Sequence[RunConfig]) -> str:
    """Return the name of runs that differ only in their seed, for the progress display."""
    config = configs[0]
    seeds = ", ".join(str(config.seed) for config in configs)
    return f"{Path(config.task).name} {config.model} seed {seeds}"

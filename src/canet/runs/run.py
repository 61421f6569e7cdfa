"""Many runs: each that is not finished yet is trained, and each that fails says why."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

from canet.errors import InputWarning
from canet.methods import get_method
from canet.runs.data import compare_data
from canet.runs.engine import Engine, Here, WorkerDied, open_engine
from canet.runs.worker import (
    FAILURE,
    Outcome,
    data_of,
    job_folder,
    train_elsewhere,
    train_here,
    write_files,
)
from canet.store import RunConfig, RunFolder
from canet.training.loop import Progress
from canet.training.trainer import pick_device
from canet.util.files import read_json, write_json
from canet.util.locks import exclusive_lock
from canet.util.progress import Display

SEEDS_AT_ONCE = 5  # on a GPU, which one run of most tasks leaves idle
MOST_DEATHS = 2  # of workers at one run


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
) -> list[FailedJob]:
    """Train every run that is not finished yet; return when each is finished or has failed.

    Finished runs on other data than there is now are refused, where it can be looked at.

    Args:
        configs: The runs, in the order in which to start them.
        root: Folder of all of them. Another command that works there is waited for.
        jobs: Runs at a time: worker processes with one thread each; 1 trains in this process.
        device: `auto`, `cpu` or `cuda`; workers share one GPU.
        data_root: Folder with raw data, on every machine that trains.
        retry: Train failed runs again.
        quiet: Show no progress.
        ray: Address of a Ray cluster that trains, or `auto`.
    """
    together = ray is None and pick_device(device).type == "cuda"
    engine = open_engine(jobs, ray, device)
    with exclusive_lock(root, quiet), engine:
        compare_data([job_folder(root, config) for config in configs], data_root, quiet)
        many = ManyRuns(configs, root, device, data_root, together)
        if retry:
            many.forget_failures()
        return many.train(engine, quiet)


def read_failure(place: RunFolder) -> list[str] | None:
    """The last lines of a failed run; None if it has not failed."""
    try:
        lines: list[str] = read_json(place.path / FAILURE)["lines"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return [f"'{place.path / FAILURE}' is damaged: --retry runs the job again"]
    return lines


class ManyRuns:
    """Runs in one folder: which are left, which are being trained, and which failed.

    Args:
        configs: The runs, in the order in which to start them.
        root, device, data_root: As in `run_jobs`.
        together: Whether runs that differ in their seed alone may be trained side by side.
    """

    def __init__(
        self,
        configs: Sequence[RunConfig],
        root: Path,
        device: str,
        data_root: Path | None,
        together: bool,
    ) -> None:
        self._runs = {job_folder(root, config).path: config for config in configs}
        self._root, self._device, self._data_root = root, device, data_root
        self._together = together
        self._left: dict[Path, RunConfig] = {}
        self._running: dict[Future[Outcome], tuple[int, list[RunConfig]]] = {}
        self._failed: dict[Path, list[str]] = {}
        self._alone: set[Path] = set()  # whose process died while it trained others too
        self._deaths: Counter[Path] = Counter()

    def forget_failures(self) -> None:
        """Count failed runs as not yet trained."""
        for path in self._runs:
            (path / FAILURE).unlink(missing_ok=True)

    def train(self, engine: Engine, quiet: bool) -> list[FailedJob]:
        """Train what is left, as many at a time as the engine has slots."""
        self._left = {path: run for path, run in self._runs.items() if not self._is_over(path)}
        last: dict[int, RunConfig] = {}
        with Display(len(self._runs), self._num_over(), "runs", quiet) as display:
            while self._left or self._running:
                busy = {slot for slot, _ in self._running.values()}
                for slot in set(range(engine.size)) - busy:
                    if configs := self._next(last.get(slot)):
                        last[slot] = configs[0]
                        future = self._start(engine, slot, configs, display)
                        self._running[future] = slot, configs
                self._show(display)
                done, _ = wait(self._running, return_when=FIRST_COMPLETED)
                for future in done:
                    slot, configs = self._running.pop(future)
                    self._settle(engine, slot, configs, future)
        return [FailedJob(self._runs[path], lines) for path, lines in self._failed.items()]

    def _next(self, last: RunConfig | None) -> list[RunConfig]:
        """The runs for a slot whose last one was `last`, taken from those that are left.

        First those whose trainer is loaded there, then those whose task is, then those whose
        trainer no other slot has; else in the order given.
        """
        elsewhere = {configs[0].name for _, configs in self._running.values()}

        def cost(config: RunConfig) -> tuple[bool, bool, bool]:
            other_data = last is None or data_of(last) != data_of(config)
            return last is None or last.name != config.name, other_data, config.name in elsewhere

        if not self._left:
            return []
        first = min(self._left, key=lambda path: cost(self._left[path]))
        chosen = [first]
        if self._together and first not in self._alone and _may_share(self._left[first]):
            name = self._left[first].name
            alike = [path for path, run in self._left.items() if run.name == name]
            chosen = [path for path in alike if path not in self._alone][:SEEDS_AT_ONCE]
        return [self._left.pop(path) for path in chosen]

    def _start(
        self, engine: Engine, slot: int, configs: list[RunConfig], display: Display
    ) -> Future[Outcome]:
        if engine.remote:
            return engine.submit(slot, train_elsewhere, configs, self._device, self._data_root)
        arguments = (configs, self._root, self._device, self._data_root)
        if isinstance(engine, Here):
            return engine.submit(slot, train_here, *arguments, self._reporter(configs, display))
        return engine.submit(slot, train_here, *arguments)

    def _settle(
        self, engine: Engine, slot: int, configs: list[RunConfig], future: Future[Outcome]
    ) -> None:
        """Runs are over, or left again where their worker died."""
        places = {config.seed: job_folder(self._root, config) for config in configs}
        try:
            outcome = future.result()
        except WorkerDied as death:
            self._bury([place.path for place in places.values()], death.lines)
            return
        for remark in outcome.remarks:
            warnings.warn(remark, InputWarning, stacklevel=2)
        for seed, files in outcome.files.items():
            write_files(places[seed], files)
        for seed, lines in outcome.failures.items():
            self._fail(places[seed].path, lines)
        if not outcome.sound:
            engine.renew(slot)

    def _bury(self, paths: list[Path], lines: list[str]) -> None:
        """A worker died: its runs are for another one, unless it is the run that kills them."""
        if len(paths) > 1:
            self._alone.update(paths)
        for path in paths:
            self._deaths[path] += 1
            if RunFolder(path).finished:
                continue
            if self._deaths[path] >= MOST_DEATHS:
                self._fail(path, lines)
            else:
                self._left[path] = self._runs[path]

    def _fail(self, path: Path, lines: list[str]) -> None:
        write_json(path / FAILURE, {"lines": lines})
        self._failed[path] = lines

    def _is_over(self, path: Path) -> bool:
        place = RunFolder(path)
        lines = None if place.finished else read_failure(place)
        if lines is not None:
            self._failed[path] = lines
        return place.finished or lines is not None

    def _num_running(self) -> int:
        return sum(len(configs) for _, configs in self._running.values())

    def _num_over(self) -> int:
        return len(self._runs) - len(self._left) - self._num_running()

    def _show(self, display: Display) -> None:
        batches = [configs for _, configs in self._running.values()]
        text = label(batches[-1]) if batches else ""
        display.update(self._num_over(), self._num_running(), len(self._failed), text)

    def _reporter(self, configs: list[RunConfig], display: Display) -> Progress:
        """Tells how far the only runs are that are being trained."""
        over = self._num_over() - len(configs)

        def report(done: int, total: int, score: float) -> None:
            part = len(configs) * done / total
            text = f"{label(configs)}, valid {score:.1f}"
            display.update(over, len(configs), len(self._failed), text, part)

        return report


def label(configs: Sequence[RunConfig]) -> str:
    """What runs that differ in their seed alone are called."""
    config = configs[0]
    seeds = ", ".join(str(config.seed) for config in configs)
    return f"{config.task} {config.method}-{config.backbone} seed {seeds}"


def _may_share(config: RunConfig) -> bool:
    return get_method(config.method).capturable

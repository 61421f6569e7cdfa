"""Train runs in a worker and return their outcome."""

import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from canet.data.task import ShiftTask
from canet.errors import CanetError, InputWarning
from canet.models import Learner
from canet.runs.evaluate import load_task_of, open_learner
from canet.store import RunConfig, RunFolder
from canet.training.loop import Progress
from canet.util import distributed
from canet.util.devices import pick_device
from canet.util.files import WriteError

FAILURE = "failed.json"
NO_SEED = -1  # announced after the last run
MAX_FAILURE_LINES = 12


@dataclass
class Outcome:
    """The outcome of runs that differ only in their seed."""

    # Seed → last lines of the error of a failed run.
    failures: dict[int, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # messages of warnings


def job_folder(root: Path, config: RunConfig) -> RunFolder:
    """Return the folder of a run: a folder for its configuration with a folder for each seed."""
    return RunFolder(root / config.name / f"seed-{config.seed}")


class Worker:
    """Trains one batch of runs after the other, and reuses task and learner if possible.

    Arguments as for `run_jobs`; `task` is that of the first runs.
    """

    def __init__(self, device: str, data_root: Path | None, task: ShiftTask | None) -> None:
        self._device, self._data_root = device, data_root
        self._task = task
        self._last: RunConfig | None = None
        self._learner: Learner | None = None

    def train(
        self, configs: Sequence[RunConfig], root: Path, on_progress: Progress | None = None
    ) -> Outcome:
        """Train or resume runs that differ only in their seed, in their folders below `root`."""
        outcome = Outcome()
        with warnings.catch_warnings(record=True, category=InputWarning) as caught:
            warnings.simplefilter("always", InputWarning)
            self._train(configs, root, on_progress, outcome)
        outcome.warnings = list(dict.fromkeys(str(warning.message) for warning in caught))
        return outcome

    def _train(
        self,
        configs: Sequence[RunConfig],
        root: Path,
        on_progress: Progress | None,
        outcome: Outcome,
    ) -> None:
        folders = {config.seed: job_folder(root, config) for config in configs}
        try:
            learner, task = self._open(configs[0])
            paths = {seed: folder.path for seed, folder in folders.items()}
            distributed.broadcast_object(configs[0].seed, self._place)
            learner.run(task, paths, ood_curves=configs[0].ood_curves, on_progress=on_progress)
            return
        except WriteError:  # a full disk is not a failure of the run: it can be resumed
            raise
        except Exception as error:
            self._learner = self._last = None
            lines = _last_lines(error)
        unfinished = [config for config in configs if not folders[config.seed].finished]
        if len(configs) == 1:
            outcome.failures |= {config.seed: lines for config in unfinished}
        else:  # train each run alone to find the one that fails
            for config in unfinished:
                self._train([config], root, on_progress, outcome)

    def end(self) -> None:
        """Tell the other processes, which `follow`, that no run is left."""
        distributed.join(self._place)
        distributed.broadcast_object(NO_SEED, self._place)

    @property
    def _place(self) -> torch.device:
        return distributed.own_device(pick_device(self._device))

    def _open(self, config: RunConfig) -> tuple[Learner, ShiftTask]:
        """Return the learner and the task of a run; reuse the last ones if possible."""
        last, self._last = self._last, None
        if last is None or replace(last, seed=config.seed) != config:
            self._learner = None  # free its memory first
            if last is not None and last.task_key != config.task_key:
                self._task = None
            self._task = self._task or load_task_of(config, self._data_root)
            torch.cuda.empty_cache()  # free the memory of the last learner for other workers
            self._learner = open_learner(config, self._device)
            if self._learner.config(self._task, config.seed, config.ood_curves) != config:
                raise CanetError(
                    f"the configuration of run {config.name} is incomplete: it must contain all "
                    f"settings of method '{config.method}' and the features of the task"
                )
        assert self._learner is not None
        assert self._task is not None
        self._last = config
        return self._learner, self._task

    def follow(self, configs: Sequence[RunConfig]) -> None:
        """Train runs of one configuration as the first process announces them; write nothing."""
        distributed.join(self._place)
        by_seed = {config.seed: config for config in configs}
        while (seed := distributed.broadcast_object(NO_SEED, self._place)) != NO_SEED:
            with suppress(CanetError):  # the first process reports it
                learner, task = self._open(by_seed[seed])
                learner.run(task, {seed: None}, ood_curves=by_seed[seed].ood_curves)


def _last_lines(error: Exception) -> list[str]:
    if isinstance(error, CanetError):
        return [str(error)]
    return "".join(traceback.format_exception(error)).splitlines()[-MAX_FAILURE_LINES:]

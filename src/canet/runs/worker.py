"""What a worker does with runs: train them, and report what came of each."""

from __future__ import annotations

import tempfile
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from canet.choice import AutoTrainer
from canet.data.task import ShiftTask
from canet.errors import CanetError, InputWarning
from canet.runs.evaluate import open_trainer
from canet.store import RunConfig, RunFolder
from canet.store.run_folder import MARKER
from canet.training import Trainer
from canet.training.loop import Progress
from canet.util.files import WriteError, write_bytes

FAILURE = "failed.json"
LINES_OF_FAILURE = 12


@dataclass
class Outcome:
    """What came of runs that differ in their seed alone.

    Args:
        failures: Seed → the last lines of a run that failed.
        files: Seed → name and content of the files of a finished run, where they must travel.
        remarks: What a user should know about the runs, a line each.
    """

    failures: dict[int, list[str]] = field(default_factory=dict)
    files: dict[int, dict[str, bytes]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def job_folder(root: Path, config: RunConfig) -> RunFolder:
    """Where a run is kept: a folder named after its content, and in it one for its seed."""
    return RunFolder(root / config.name / f"seed-{config.seed}")


class Worker:
    """Trains runs one batch after the other, and keeps the last trainer for the next batch.

    Args:
        device: `auto`, `cpu` or `cuda`.
        data_root: Folder with raw data.
        task: The task of the first runs, where it is loaded already.
    """

    def __init__(self, device: str, data_root: Path | None, task: ShiftTask | None = None) -> None:
        self._device, self._data_root = device, data_root
        self._task = task
        self._trainer: Trainer | AutoTrainer | None = None

    def train(
        self, configs: Sequence[RunConfig], root: Path, on_progress: Progress | None = None
    ) -> Outcome:
        """Train runs that differ in their seed alone, in their folders below `root`.

        A run that was stopped continues from its checkpoint.
        """
        outcome = Outcome()
        with warnings.catch_warnings(record=True, category=InputWarning) as caught:
            warnings.simplefilter("always", InputWarning)
            self._train(configs, root, on_progress, outcome)
        outcome.remarks = list(dict.fromkeys(str(warning.message) for warning in caught))
        return outcome

    def _train(
        self,
        configs: Sequence[RunConfig],
        root: Path,
        on_progress: Progress | None,
        outcome: Outcome,
    ) -> None:
        places = {config.seed: job_folder(root, config) for config in configs}
        try:
            trainer = self._open(configs[0])
            folders = {seed: place.path for seed, place in places.items()}
            trainer.run_together(folders, configs[0].ood_curves, on_progress)
            return
        except WriteError:  # not the fault of a run: all continue when there is room
            raise
        except Exception as error:
            self._trainer = None
            lines = _last_lines(error)
        left = [config for config in configs if not places[config.seed].finished]
        if len(configs) == 1:
            outcome.failures |= {config.seed: lines for config in left}
        else:  # find the run that failed: train each alone
            for config in left:
                self._train([config], root, on_progress, outcome)

    def _open(self, config: RunConfig) -> Trainer | AutoTrainer:
        """The trainer of a run, with whatever the last one has loaded already."""
        last, seed, curves = self._trainer, config.seed, config.ood_curves
        if last and last.config(seed, curves) == config:
            return last
        task = self._task
        if last:
            task = last.task if last.config().task_key == config.task_key else None
        self._trainer = self._task = last = None  # their memory is free for the next
        trainer = open_trainer(config, self._device, self._data_root, task)
        if trainer.config(seed, curves) != config:
            raise CanetError(
                f"job {config.name} is not complete: give all settings of '{config.method}', and "
                "features as the task names them"
            )
        torch.cuda.empty_cache()  # other workers may need what the last trainer used
        self._trainer = trainer
        return trainer


_worker = cache(Worker)


def train_in_process(
    configs: Sequence[RunConfig], root: Path, device: str, data_root: Path | None
) -> Outcome:
    """Train runs in a worker process of this machine."""
    return _worker(device, data_root).train(configs, root)


def train_elsewhere(configs: Sequence[RunConfig], device: str, data_root: Path | None) -> Outcome:
    """Train runs on a machine that does not share our disk: the files of the runs travel back."""
    with tempfile.TemporaryDirectory(prefix="canet-") as folder:
        outcome = train_in_process(configs, Path(folder), device, data_root)
        for config in configs:
            place = job_folder(Path(folder), config)
            if place.finished:
                outcome.files[config.seed] = {
                    name: (place.path / name).read_bytes() for name in [*place.files, MARKER]
                }
    return outcome


def write_files(place: RunFolder, files: dict[str, bytes]) -> None:
    """Write a run's files as they were elsewhere, the marker last."""
    for name in sorted(files, key=lambda name: name == MARKER):
        write_bytes(place.path / name, files[name])


def _last_lines(error: Exception) -> list[str]:
    if isinstance(error, CanetError):
        return [str(error)]
    return "".join(traceback.format_exception(error)).splitlines()[-LINES_OF_FAILURE:]

"""What a worker does with runs: train them, and tell what came of each."""

from __future__ import annotations

import tempfile
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from canet.errors import CanetError, InputWarning
from canet.runs.engine import LINES_OF_FAILURE
from canet.runs.evaluate import open_trainer
from canet.store import RunConfig, RunFolder
from canet.store.run_folder import MARKER
from canet.training import Trainer
from canet.training.loop import Progress
from canet.util.files import WriteError, write_bytes

FAILURE = "failed.json"

Files = dict[str, bytes]


@dataclass
class Outcome:
    """What came of runs that differ in their seed alone.

    Args:
        failures: Seed → the last lines of a run that failed.
        files: Seed → name and content of the files of a finished run, where they must travel.
        remarks: What a user should know of the runs, a line each.
        sound: False after an error that may have left the process or its device unusable.
    """

    failures: dict[int, list[str]] = field(default_factory=dict)
    files: dict[int, Files] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    sound: bool = True


def job_folder(root: Path, config: RunConfig) -> RunFolder:
    """Where a run is kept: a folder named after its content, one below for its seed."""
    return RunFolder(root / config.name / f"seed-{config.seed}")


def data_of(config: RunConfig) -> tuple[Any, ...]:
    """What a run's task depends on: runs that agree in it can share a loaded task."""
    return (
        config.task,
        config.protocol,
        config.data_seed,
        config.features,
        config.inductive,
        config.generator,
    )


def train_here(
    configs: Sequence[RunConfig],
    root: Path,
    device: str,
    data_root: Path | None,
    on_progress: Progress | None = None,
) -> Outcome:
    """Train runs that differ in their seed alone, in their folders below `root`.

    One that was stopped goes on from its checkpoint.
    """
    outcome = Outcome()
    with warnings.catch_warnings(record=True, category=InputWarning) as caught:
        warnings.simplefilter("always", InputWarning)
        _train(configs, root, device, data_root, on_progress, outcome)
    outcome.remarks = list(dict.fromkeys(str(warning.message) for warning in caught))
    return outcome


def train_elsewhere(configs: Sequence[RunConfig], device: str, data_root: Path | None) -> Outcome:
    """Train runs on a machine whose files nobody else sees: those of the runs travel back."""
    with tempfile.TemporaryDirectory(prefix="canet-") as folder:
        root = Path(folder)
        outcome = train_here(configs, root, device, data_root)
        for config in configs:
            place = job_folder(root, config)
            if place.finished:
                outcome.files[config.seed] = {
                    name: (place.path / name).read_bytes() for name in [*place.files, MARKER]
                }
    return outcome


def write_files(place: RunFolder, files: Files) -> None:
    """Write a run's files as they were elsewhere, the marker last."""
    for name in sorted(files, key=lambda name: name == MARKER):
        write_bytes(place.path / name, files[name])


def _train(
    configs: Sequence[RunConfig],
    root: Path,
    device: str,
    data_root: Path | None,
    on_progress: Progress | None,
    outcome: Outcome,
) -> None:
    places = {config.seed: job_folder(root, config) for config in configs}
    for place in places.values():
        for unfinished in place.path.glob(".*.tmp"):  # left by a process that was killed
            unfinished.unlink(missing_ok=True)
    folders: dict[int, Path | None] = {seed: place.path for seed, place in places.items()}
    try:
        trainer = _Warm.open(configs[0], device, data_root)
        trainer.run_together(folders, configs[0].ood_curves, on_progress)
        return
    except WriteError:  # no run's own fault: all of them go on when there is room
        raise
    except Exception as error:
        _Warm.trainer = None
        outcome.sound &= isinstance(error, CanetError)
        lines = _last_lines(error)
    left = [config for config in configs if not places[config.seed].finished]
    if len(configs) == 1:
        outcome.failures |= {config.seed: lines for config in left}
    else:  # which of them it was shows when each is trained alone
        for config in left:
            _train([config], root, device, data_root, on_progress, outcome)


class _Warm:
    """The trainer of the last run of this process, kept for the next."""

    trainer: Trainer | None = None

    @classmethod
    def open(cls, config: RunConfig, device: str, data_root: Path | None) -> Trainer:
        """The trainer of a run, with whatever the last one has loaded already."""
        last, seed, curves = cls.trainer, config.seed, config.ood_curves
        if last and last.config(seed, curves) == config:
            return last
        cls.trainer = None
        loaded = last.task if last and data_of(last.config()) == data_of(config) else None
        trainer = open_trainer(config, device, data_root, loaded)
        if trainer.config(seed, curves) != config:
            raise CanetError(
                f"job {config.name} does not say what its run is: give all settings of "
                f"'{config.method}', and features as the task names them"
            )
        torch.cuda.empty_cache()  # other workers may need what the last trainer held
        cls.trainer = trainer
        return trainer


def _last_lines(error: Exception) -> list[str]:
    if isinstance(error, CanetError):
        return [str(error)]
    return "".join(traceback.format_exception(error)).splitlines()[-LINES_OF_FAILURE:]

"""Finished runs scored again from their saved weights, and beside what they said then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from canet.choice import AutoTrainer
from canet.data import load_task
from canet.data.task import ShiftTask
from canet.methods import AutoSettings, describe_method
from canet.settings import override
from canet.store import RunConfig, RunFolder, find_runs
from canet.store.config import grouped
from canet.store.summary import Scored, summarise
from canet.training import Trainer
from canet.training.trainer import device_name, versions

SAME_HARDWARE, OTHER_HARDWARE = 0.001, 0.5
"""Percentage points by which scores may differ from those of training, on the same device and
version of torch, and on another, whose rounding moves a few nodes."""


def evaluate_runs(
    path: Path, device: str = "auto", data_root: Path | None = None
) -> list[dict[str, Any]]:
    """A summary, as `canet train` gives it, for each configuration at or below `path`.

    A copy of a run is no further run. Where scores are not those of training, its `differences`
    has a line for each run.
    """
    groups = grouped((place.read_config(), place) for place in find_runs(path))
    return [_evaluate([*group.values()], device, data_root) for group in groups]


def _evaluate(places: list[RunFolder], device: str, data_root: Path | None) -> dict[str, Any]:
    """The summary of runs that differ in their seed alone."""
    results = [place.read_result() for place in places]
    trainer = open_trainer(places[0].read_config(), device, data_root)
    runs, differences = [], []
    hardware = device_name(trainer.device, trainer.threads), versions()["torch"]
    for place, result in zip(places, results, strict=True):
        scores = trainer.scores(trainer.load(place))
        before = result.device, result.versions.get("torch")
        tolerance = SAME_HARDWARE if hardware == before else OTHER_HARDWARE
        if found := difference(scores, result.scores, tolerance):
            differences.append(f"'{place.path}': {found}")
        runs.append(Scored(place.read_config(), replace(result, scores=scores)))
    summary = summarise(runs, trainer.task.metric)
    return summary | ({"differences": differences} if differences else {})


def difference(now: Mapping[str, float], then: Mapping[str, float], tolerance: float) -> str:
    """Where scores differ most, by more than the tolerance; nothing if they do not."""
    gaps = {
        split: np.nan_to_num(abs(score - now[split]), nan=np.inf)
        for split, score in then.items()
        if split in now and not np.isclose(score, now[split], 0.0, tolerance, equal_nan=True)
    }
    if not gaps:
        return ""
    worst = max(gaps, key=lambda split: gaps[split])
    return f"{worst} scores {now[worst]:.2f}, where its result says {then[worst]:.2f}"


def open_trainer(
    config: RunConfig, device: str, data_root: Path | None, task: ShiftTask | None = None
) -> Any:
    """The trainer, or AutoTrainer, of a run, with its task loaded unless it is given."""
    task = task or load_task_of(config, data_root)
    settings = override(describe_method(config.method).settings_type(), config.settings)
    if isinstance(settings, AutoSettings):
        return AutoTrainer(task, settings, device, threads=config.threads)
    return Trainer(task, config.method, config.backbone, settings, device, threads=config.threads)


def load_task_of(config: RunConfig, data_root: Path | None) -> ShiftTask:
    """The task of a run, as it was."""
    task, *how = config.task_key
    return load_task(task, data_root, *how)

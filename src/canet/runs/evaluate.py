"""Finished runs scored again from their saved weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from canet.data import load_task
from canet.data.spurious import centred, without_spurious_columns
from canet.data.task import ShiftTask
from canet.methods import get_method
from canet.settings import override
from canet.training import RunConfig, RunFolder, Trainer, find_runs
from canet.training.summary import Scored, summarise

WITHOUT_SPURIOUS = "without spurious columns"
"""Features of a blind model, which never sees what would mislead it."""
CENTRED = "centred"
"""Features of a control: each column less its mean over a domain."""
_VIEWS = {WITHOUT_SPURIOUS: without_spurious_columns, CENTRED: centred}


def evaluate_runs(
    path: Path, device: str = "auto", data_root: Path | None = None
) -> list[dict[str, Any]]:
    """A summary, as `canet train` gives it, for each configuration at or below `path`."""
    groups: dict[str, list[RunFolder]] = {}
    for place in find_runs(path):
        groups.setdefault(repr(replace(place.read_config(), seed=0)), []).append(place)
    return [_evaluate(places, device, data_root) for places in groups.values()]


def _evaluate(places: list[RunFolder], device: str, data_root: Path | None) -> dict[str, Any]:
    trainer = open_trainer(places[0].read_config(), device, data_root)
    runs = []
    for place in sorted(places, key=lambda place: place.read_config().seed):
        scores = trainer.scores(trainer.load(place))
        runs.append(Scored(place.read_config(), place.read_result() | {"scores": scores}))
    return summarise(runs, trainer.task.metric)


def open_trainer(
    config: RunConfig, device: str, data_root: Path | None, task: ShiftTask | None = None
) -> Trainer:
    """The trainer whose run `config` describes, with its task loaded unless it is given."""
    task = task or _load(config, data_root)
    settings = override(get_method(config.method).settings_type(), config.settings)
    return Trainer(task, config.method, config.backbone, settings, device)


def _load(config: RunConfig, data_root: Path | None) -> ShiftTask:
    view = _VIEWS.get(config.features)
    features = None if view or config.features == "original" else config.features
    task = load_task(
        config.task,
        data_root,
        config.data_seed,
        config.protocol,
        features,
        config.inductive,
        config.generator,
    )
    return view(task) if view else task

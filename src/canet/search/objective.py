"""The objective of a search: the validation score as a function of settings, without test data."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from canet.data.task import ShiftTask
from canet.methods import get_method
from canet.runs.evaluate import load_task_of
from canet.settings import override
from canet.store import RunConfig
from canet.training import Trainer
from canet.training.fields import TaskFields
from canet.training.loop import Progress
from canet.training.selection import BestValidation


def without_test_labels(task: ShiftTask) -> ShiftTask:
    """Return the task without test sets and with labels of training and validation nodes only."""
    labelled = torch.cat([task.train, task.valid])
    data = copy(task.data)
    data.y = torch.full_like(task.data.y, -1)
    data.y[labelled] = task.data.y[labelled]
    return replace(task, data=data, test_id=task.test_id[:0], test_ood={}, left_out={})


class Objective:
    """Best validation score of a method as a function of its settings.

    The task is loaded once, without its test labels, and moved to the device once for each number
    of layers.

    Args:
        base: Task, method and initial settings.
        seeds: Number of runs with seeds 0, 1, …; the objective is their mean score.
        device: `auto`, `cpu` or `cuda`.
        data_root: Folder with raw data.
    """

    def __init__(self, base: RunConfig, seeds: int, device: str, data_root: Path | None) -> None:
        task = load_task_of(base, data_root)
        self.task = without_test_labels(task)
        self.data = task.digest
        self._base = base
        self._start = override(get_method(base.method).settings_type(), base.settings)
        self._seeds = seeds
        self._device = device
        self._fields: dict[int, TaskFields] = {}

    def __call__(self, changes: Mapping[str, Any], on_progress: Progress | None = None) -> float:
        """Return the score with some settings changed; only the first run reports progress."""
        settings = override(self._start, changes)
        method, backbone = self._base.method, self._base.backbone
        # Of all searched settings, only the number of layers changes the receptive field.
        fields = self._fields.get(settings.num_layers)
        trainer = Trainer(self.task, method, backbone, settings, self._device, fields=fields)
        self._fields[settings.num_layers] = trainer.fields
        scores = []
        for seed in range(self._seeds):
            history = trainer.run(seed, on_progress=on_progress if seed == 0 else None).history
            scores.append(history["valid"][BestValidation.epoch(history)])
        return mean(scores)

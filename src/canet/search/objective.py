"""Trials: the validation score as a function of settings, without test data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import optuna
import torch
from optuna.trial import FrozenTrial

from canet.data.digest import DataDigest
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.methods import get_method
from canet.models import Trainer
from canet.runs.evaluate import load_task_of
from canet.search.study import DEVICE, ERROR, Plan, check_data, open_study
from canet.settings import override
from canet.training.fields import TaskFields
from canet.training.loop import Progress
from canet.util.devices import device_name, pick_device
from canet.util.files import WriteError

EPOCHS_BETWEEN_REPORTS = 20  # as for runs on a GPU


def without_test_labels(task: ShiftTask) -> ShiftTask:
    """Return the task without test sets and with labels of training and validation nodes only."""
    labelled = torch.cat([task.train, task.valid])
    y = torch.full_like(task.y, -1)
    y[labelled] = task.y[labelled]
    data = task.data.with_columns(y=y)
    return replace(task, data=data, test_id=task.test_id[:0], test_ood={}, left_out={})


@dataclass
class Objective:
    """Best validation score of a method as a function of its settings: the mean over some seeds.

    The task is loaded before the first trial of a process, without its test labels. It is moved to
    the device once for each number of layers.
    """

    plan: Plan
    device: str
    data_root: Path | None
    fields: dict[int, TaskFields] = field(default_factory=dict)  # by the number of layers

    @cached_property
    def loaded(self) -> tuple[ShiftTask, DataDigest]:
        """The task without its test labels, and the digest of the whole task."""
        task = load_task_of(self.plan.base, self.data_root)
        return without_test_labels(task), task.digest

    def __call__(self, changes: Mapping[str, Any], on_progress: Progress | None = None) -> float:
        """Return the score with some settings changed; only the first run reports progress."""
        base, (task, _) = self.plan.base, self.loaded
        start = override(get_method(base.method).settings_type(), base.settings)
        settings = override(start, changes)
        # Of all searched settings, only the number of layers changes the receptive field.
        fields = self.fields.get(settings.num_layers)
        trainer = Trainer(task, base.method, base.backbone, settings, self.device, fields=fields)
        self.fields[settings.num_layers] = trainer.fields
        scores = []
        for seed in range(self.plan.seeds):
            history = trainer.run(seed, on_progress=on_progress if seed == 0 else None).history
            scores.append(float(np.nanmax(history["valid"])))
        return mean(scores)


class TrialJob(NamedTuple):
    """A trial for a worker, which does not need the journal of the search."""

    trial: int  # its number
    settings: Mapping[str, Any]
    scored: list[FrozenTrial]  # trials with a score, with which it is compared
    data: dict[str, Any] | None  # digest of the data of earlier trials


def train_trial(objective: Objective, job: TrialJob, _: Path) -> tuple[DataDigest, FrozenTrial]:
    """Return the digest of the data and a trial with the outcome; low scores stop it early."""
    plan, data = objective.plan, objective.loaded[1]
    check_data(job.data, data)
    study = open_study(plan)
    study.add_trials(job.scored)

    def score(trial: optuna.Trial) -> float:
        trial.set_user_attr(DEVICE, device_name(pick_device(objective.device)))

        def report(done: int, total: int, valid: float) -> None:
            if done % EPOCHS_BETWEEN_REPORTS == 0 and done < total and math.isfinite(valid):
                trial.report(valid, done)
                if trial.should_prune() and job.settings != plan.start:
                    raise optuna.TrialPruned

        try:
            return objective(job.settings, report)
        except WriteError:  # a full disk is not a failure of the settings
            raise
        except CanetError as error:
            reason = str(error)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            reason = "out of memory on the device"
        trial.set_user_attr(ERROR, reason)
        return math.nan  # Optuna records a failed trial

    study.optimize(score, n_trials=1)
    return data, study.trials[-1]

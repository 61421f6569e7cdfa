"""Train trials in a worker; trials with low scores are stopped early."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

import optuna
import torch
from optuna.storages import BaseStorage

from canet.errors import CanetError
from canet.search.objective import Objective
from canet.search.storage import wait_for_storage
from canet.search.study import ERROR, Plan, check_data, open_study, sampler_of
from canet.util.devices import device_name, pick_device
from canet.util.files import WriteError

EPOCHS_BETWEEN_REPORTS = 20  # as for runs on a GPU


class TrialWorker:
    """Trains one trial after the other; the task is loaded once, before the first.

    Args:
        plan: The plan of the search.
        storage: Storage for the trials.
        device: `auto`, `cpu` or `cuda`.
        data_root: Folder with raw data.
    """

    def __init__(
        self, plan: Plan, storage: BaseStorage, device: str, data_root: Path | None
    ) -> None:
        self._plan, self._storage = plan, storage
        self._device, self._data_root = device, data_root

    @cached_property
    def _study(self) -> optuna.Study:
        wait_for_storage(self._storage)
        return open_study(self._plan, self._storage)

    @cached_property
    def _objective(self) -> Objective:
        plan = self._plan
        objective = Objective(plan.base, plan.seeds, self._device, self._data_root)
        check_data(self._study, objective.data)
        return objective

    def train(self, seed: int) -> str:
        """Draw and train the settings of one trial; return the name of the device."""
        objective = self._objective

        def score(trial: optuna.Trial) -> float:
            settings = {
                name: trial.suggest_categorical(name, values)
                for name, values in self._plan.choices.items()
            }

            def report(done: int, total: int, valid: float) -> None:
                if done % EPOCHS_BETWEEN_REPORTS == 0 and done < total and math.isfinite(valid):
                    trial.report(valid, done)
                    if trial.should_prune() and settings != self._plan.start:
                        raise optuna.TrialPruned

            try:
                return objective(settings, report)
            except WriteError:  # a full disk is not a failure of the settings
                raise
            except CanetError as error:
                reason = str(error)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                reason = "out of memory on the device"
            trial.set_user_attr(ERROR, reason)
            return math.nan  # Optuna records a failed trial

        self._study.sampler = sampler_of(self._plan, seed)
        try:
            self._study.optimize(score, n_trials=1)
        except AssertionError as error:  # Optuna raises it after an error of the storage
            raise error.__context__ or error from None
        return device_name(pick_device(self._device))


def train_trial(worker: TrialWorker, seed: int, _: Path) -> str:
    """Train a trial; a job of the pool."""
    return worker.train(seed)

"""Train the settings of a trial in a worker; trials with low scores are stopped early."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import optuna
import torch
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from canet.errors import CanetError
from canet.search.objective import Objective
from canet.search.storage import wait_for_storage
from canet.search.study import Plan, check_data, open_study
from canet.util.devices import device_name, pick_device
from canet.util.files import WriteError

EPOCHS_BETWEEN_REPORTS = 20  # as for runs on a GPU


@dataclass(frozen=True)
class TrialOutcome:
    """The outcome of a trial.

    Args:
        state: Complete, pruned or failed.
        hardware: Name of the device.
        score: Score of a complete trial.
        error: Why the settings of a failed trial cannot be trained.
    """

    state: TrialState
    hardware: str
    score: float | None = None
    error: str | None = None


class TrialWorker:
    """Trains one trial after the other; the task is loaded once.

    Args:
        plan: The plan of the search.
        storage: Storage for the scores of trials.
        device: `auto`, `cpu` or `cuda`.
        data_root: Folder with raw data.
    """

    def __init__(
        self, plan: Plan, storage: BaseStorage, device: str, data_root: Path | None
    ) -> None:
        wait_for_storage(storage)
        self.study = open_study(plan, storage)
        self._plan = plan
        self._hardware = device_name(pick_device(device))
        self._objective = Objective(plan.base, plan.seeds, device, data_root)
        check_data(self.study, self._objective.data)

    def train(self, trial: optuna.Trial) -> TrialOutcome:
        """Train the settings of a trial, which may come from another process."""
        settings = trial.params

        def report(done: int, total: int, valid: float) -> None:
            if done % EPOCHS_BETWEEN_REPORTS == 0 and done < total and math.isfinite(valid):
                trial.report(valid, done)
                if trial.should_prune() and settings != self._plan.start:
                    raise optuna.TrialPruned

        try:
            score = self._objective(settings, report)
            return TrialOutcome(TrialState.COMPLETE, self._hardware, score)
        except optuna.TrialPruned:
            return TrialOutcome(TrialState.PRUNED, self._hardware)
        except WriteError:  # a full disk is not a failure of the settings
            raise
        except CanetError as error:
            reason = str(error)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            reason = "out of memory on the device"
        return TrialOutcome(TrialState.FAIL, self._hardware, error=reason)


_workers: dict[str, TrialWorker] = {}


def train_in_process(
    shared: tuple[Plan, BaseStorage, str, Path | None], trial_id: int, _: Path
) -> TrialOutcome:
    """Train a trial in a worker process, which keeps the task for the next trial."""
    plan, storage, device, data_root = shared
    worker = _workers.get(plan.name)
    if worker is None:
        worker = _workers[plan.name] = TrialWorker(plan, storage, device, data_root)
    return worker.train(optuna.Trial(worker.study, trial_id))

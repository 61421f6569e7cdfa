"""What a worker does with a trial: train its settings, and stop early where others did better."""

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
from canet.search.storage import reach
from canet.search.study import Plan, check_data, open_study
from canet.training.trainer import device_name, pick_device
from canet.util.files import WriteError

EPOCHS_BETWEEN_REPORTS = 20  # as often as a run on a GPU reports its score


@dataclass(frozen=True)
class Ended:
    """How a trial ended.

    Args:
        state: Complete, pruned or failed.
        hardware: What it ran on.
        score: The score of a complete trial.
        error: Why its settings cannot be trained.
    """

    state: TrialState
    hardware: str
    score: float | None = None
    error: str | None = None


class TrialWorker:
    """Trains one trial after the other; the task is loaded once.

    Args:
        plan: What is searched.
        storage: Where trials report their scores.
        device: `auto`, `cpu` or `cuda`.
        data_root: Folder with raw data.
    """

    def __init__(
        self, plan: Plan, storage: BaseStorage, device: str, data_root: Path | None
    ) -> None:
        reach(storage)
        self.study = open_study(plan, storage)
        self._plan = plan
        self._hardware = device_name(pick_device(device))
        self._objective = Objective(plan.base, plan.seeds, device, data_root)
        check_data(self.study, self._objective.data)

    def train(self, trial: optuna.Trial) -> Ended:
        """Train with the settings of a trial that another process may have drawn."""
        settings = trial.params

        def report(done: int, total: int, valid: float) -> None:
            if done % EPOCHS_BETWEEN_REPORTS == 0 and done < total and math.isfinite(valid):
                trial.report(valid, done)
                if trial.should_prune() and settings != self._plan.start:
                    raise optuna.TrialPruned

        try:
            score = self._objective(settings, report)
            return Ended(TrialState.COMPLETE, self._hardware, score)
        except optuna.TrialPruned:
            return Ended(TrialState.PRUNED, self._hardware)
        except WriteError:  # not the fault of the settings
            raise
        except CanetError as error:
            reason = str(error)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            reason = "not enough memory on the device"
        return Ended(TrialState.FAIL, self._hardware, error=reason)


_workers: dict[str, TrialWorker] = {}


def train_in_process(
    plan: Plan, storage: BaseStorage, device: str, data_root: Path | None, trial_id: int
) -> Ended:
    """Train a trial in a worker process, which keeps its task for the next one."""
    worker = _workers.get(plan.name)
    if worker is None:
        worker = _workers[plan.name] = TrialWorker(plan, storage, device, data_root)
    return worker.train(optuna.Trial(worker.study, trial_id))

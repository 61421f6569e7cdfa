"""Trainers of the tiny task, runs that stop in the middle, and comparisons of runs."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from canet.data.task import ShiftTask
from canet.methods import METHODS, Method
from canet.models import FittedNetwork, Run, Trainer
from canet.training import loop
from tests.support.tiny import tiny_task


def make(
    task: ShiftTask | None = None,
    name: str = "erm",
    backbone: str = "gcn",
    device: str = "cpu",
    **settings: Any,
) -> Trainer:
    quick = {"hidden": 8, "epochs": 12, "learning_rate": 0.02} | settings
    return Trainer(
        task or tiny_task(), name, backbone, METHODS[name].settings_type(**quick), device
    )


def weights(run: Run) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in run.method.state_dict().items()}


def scores(of: Trainer, method: Method) -> dict[str, float]:
    """The scores of a method on the task of a trainer."""
    return of.learner.scores(of.task, FittedNetwork(method, of.learner.backbone.name))


def same_bits(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(first[n].equal(second[n]) for n in first)


def same_run(first: Run, second: Run) -> bool:
    return (
        same_bits(weights(first), weights(second))
        and first.history == second.history
        and first.result.scores == second.result.scores
        and first.result.selected_epoch == second.result.selected_epoch
    )


class Killed(BaseException):
    pass


def kill_at(epoch: int) -> loop.Progress:
    def on_progress(done: int, total: int, score: float) -> None:
        if done == epoch:
            raise Killed

    return on_progress


def run_until(killed_at: int, folder: Path, of: Trainer, **options: Any) -> None:
    """A run that stops at an epoch, with a checkpoint of every earlier epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
        with pytest.raises(Killed):
            of.run(folder=folder, on_progress=kill_at(killed_at), **options)

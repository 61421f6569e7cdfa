"""Train every candidate with and without each simulated shift, and average the best ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from canet.choice.ensemble import Ensemble
from canet.choice.portfolio import Candidate
from canet.choice.shifts import HELD_OUT, simulate_shifts
from canet.data.task import ShiftTask
from canet.methods import Method
from canet.training import METRICS, Trainer

MOST_MEMBERS = 5
Report = Callable[[int, int, str], None]
"""Called with trainings done, trainings in all, and what is trained now."""


@dataclass(frozen=True)
class Line:
    """A candidate in the leaderboard; scores are in percent.

    Args:
        name: Of the candidate.
        validation: Its score on the validation nodes.
        shifts: Name of each simulated shift → the score on the nodes that were held out.
        weight: Its part in the ensemble.
        seconds: How long its trainings took.
    """

    name: str
    validation: float
    shifts: dict[str, float]
    weight: float
    seconds: float

    @property
    def under_shift(self) -> float:
        """The mean over the simulated shifts; without any, the validation score."""
        return float(np.mean([*self.shifts.values()])) if self.shifts else self.validation


@dataclass(frozen=True)
class Choice:
    """What was chosen: the ensemble, its candidates, its scores in percent, and all lines."""

    ensemble: Ensemble
    members: list[Candidate]
    scores: dict[str, float]
    leaderboard: list[Line]


def choose(
    task: ShiftTask,
    portfolio: Sequence[Candidate],
    changes: Mapping[str, Any],
    *,
    seed: int = 0,
    device: str = "auto",
    threads: int = 1,
    class_weight: Tensor | None = None,
    time_limit: float | None = None,
    folder: Path | None = None,
    on_progress: Report | None = None,
) -> Choice:
    """The mean of the candidates that are best under simulated shifts.

    Args:
        task: The task; its test labels are only used to score what was chosen.
        portfolio: Candidates in the order in which they are trained.
        changes: Settings of all candidates that do not set them.
        seed: Of all trainings.
        device, threads, class_weight: As for :class:`Trainer`.
        time_limit: Seconds after which no further candidate is begun; the first always is.
        folder: Where trainings are kept, so that a choice that was stopped continues there.
        on_progress: Shows how far it is.
    """
    shifts = simulate_shifts(task)
    tasks = {"": task} | {shift.name: shift.task for shift in shifts}
    begin, lines, trained = (
        time.monotonic(),
        list[Line](),
        list[tuple[Candidate, Trainer, Method]](),
    )
    for number, candidate in enumerate(portfolio):
        if lines and time_limit is not None and time.monotonic() - begin > time_limit:
            break
        scores, start = dict[str, float](), time.monotonic()
        for count, (name, part) in enumerate(tasks.items()):
            if on_progress:
                done = number * len(tasks) + count
                on_progress(done, len(portfolio) * len(tasks), candidate.name)
            trainer = Trainer(
                part,
                candidate.method,
                candidate.backbone,
                candidate.all_settings(changes),
                device,
                class_weight=class_weight,
                threads=threads,
            )
            place = folder and folder / f"{number}-{count}" / f"seed-{seed}"
            run = trainer.run(seed, place)
            if name:
                scores[name] = run.result.scores[HELD_OUT]
            else:
                trained.append((candidate, trainer, run.method))
                validation = run.result.scores["valid"]
        seconds = time.monotonic() - start
        lines.append(Line(candidate.name, validation, scores, 0.0, seconds))
    return _chosen(task, trained, lines)


def choose_members(lines: Sequence[Line]) -> list[float]:
    """Weights: the same for the candidates that are best under shift, at most five and half of all.

    Ties go to the better validation score, then to the earlier candidate.
    """
    count = min(MOST_MEMBERS, -(-len(lines) // 2))
    order = sorted(range(len(lines)), key=lambda i: (lines[i].under_shift, lines[i].validation, -i))
    best = set(order[-count:])
    return [1 / count if i in best else 0.0 for i in range(len(lines))]


def _chosen(
    task: ShiftTask, trained: Sequence[tuple[Candidate, Trainer, Method]], lines: Sequence[Line]
) -> Choice:
    """The ensemble of the chosen candidates, scored on every split."""
    weights = choose_members(lines)
    chosen = [i for i, weight in enumerate(weights) if weight]
    members = [trained[i] for i in chosen]
    ensemble = Ensemble([method for *_, method in members], [weights[i] for i in chosen])
    splits = task.splits()
    logits = [_logits(trainer, method) for _, trainer, method in members]
    metric = METRICS[task.metric]
    scores = {
        split: float(metric(ensemble.combine([one[split] for one in logits]), task.data.y[nodes]))
        for split, nodes in splits.items()
    }
    board = [replace(line, weight=w) for line, w in zip(lines, weights, strict=True)]
    return Choice(ensemble.cpu().eval(), [candidate for candidate, *_ in members], scores, board)


@torch.no_grad()
def _logits(trainer: Trainer, method: Method) -> dict[str, Tensor]:
    """Logits $[n, C]$ of every split by its name, on the CPU."""
    found: dict[str, Tensor] = {}
    for batch, splits in trainer.fields.by_pass():
        logits = method.eval().predict(batch)
        found |= {split: logits[rows].cpu() for split, rows in splits.items()}
    return found

"""The measured implementations: the plain equations, and ERM and CaNet of this package.

CaNet is measured with and without interventions. If its estimator reads nodes that ERM does not
read, ERM is also measured on all nodes that CaNet reads: the first ratio is the cost of the method,
the second the cost of its layers.

An epoch is a training step and the validation score. The plain implementation is timed epoch by
epoch, with a synchronisation of the GPU after each. On a GPU the package replays recorded epochs
and checks scores only once in a while, so its time per epoch is the time between two checks divided
by the number of epochs. The time before the first check (recording, filling caches) counts as
warm-up. It is part of the time of a whole run, which is measured separately.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks.cases import Case
from benchmarks.ceiling import epoch_cost
from benchmarks.memory import Meter, out_of_memory
from benchmarks.plain import PlainTraining
from canet.data.task import ShiftTask
from canet.methods import Settings
from canet.models import Trainer
from canet.training.fields import TaskFields
from canet.training.loop import EPOCHS_BETWEEN_CHECKS
from canet.util.memory import keep_freed_memory

SAME_NODES = "erm on the same nodes"
INTERVENING = "canet with interventions"
IMPLEMENTATIONS = ("plain", "erm", SAME_NODES, "canet", INTERVENING)
PUBLISHED_EPOCHS = 500
WARM_UP_CHECKS = 3  # of the warm-up run on a GPU: recorded before the first, timed after it
MIN_EPOCHS = {"cpu": 3, "cuda": 60}
MAX_EPOCHS = {"cpu": 50, "cuda": PUBLISHED_EPOCHS - EPOCHS_BETWEEN_CHECKS}
MIN_PLAIN_EPOCHS, MAX_PLAIN_EPOCHS = 2, 100


class Clock:
    """Progress callback that records the time per epoch."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, float]] = []

    def __call__(self, done: int, total: int, score: float) -> None:
        self._calls.append((done, time.perf_counter()))

    def times(self) -> list[float]:
        """Seconds per epoch between two calls; the time before the first call is warm-up."""
        pairs = zip(self._calls, self._calls[1:], strict=False)
        return [(b - a) / (after - before) for (before, a), (after, b) in pairs]


def measure(
    case: Case, implementation: str, task: ShiftTask, device: torch.device, seconds: float
) -> dict[str, Any]:
    """Measure the times per epoch and the peak memory of an implementation.

    If it runs out of memory, the result has `died` instead of times.

    Args:
        case, implementation: The case and the implementation.
        task: The task of the case.
        device: The device.
        seconds: Approximate time of the measurement, without warm-up.
    """
    meter = Meter(device)
    try:
        if implementation == "plain":
            measured = _plain(case, task, device, seconds)
        else:
            measured = _engine(case, implementation, task, device, seconds)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        measured = {"died": "out of memory"}
    return measured | {"peak_mb": meter.peak_mb(), "level_mb": meter.level_mb}


def _plain(case: Case, task: ShiftTask, device: torch.device, seconds: float) -> dict[str, Any]:
    training = PlainTraining(task, case.settings(), case.backbone, device)
    times: list[float] = []

    def epoch() -> float:
        begin = time.perf_counter()
        training.epoch()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    epoch()
    while len(times) < MIN_PLAIN_EPOCHS or (sum(times) < seconds and len(times) < MAX_PLAIN_EPOCHS):
        times.append(epoch())
    return {"times": times}


def _trainer(
    case: Case,
    implementation: str,
    task: ShiftTask,
    device: torch.device,
    epochs: int,
    fields: TaskFields | None = None,
) -> Trainer:
    is_canet = implementation in ("canet", INTERVENING)
    settings: Settings = case.settings() if is_canet else case.erm_settings()
    if implementation == INTERVENING:
        settings = replace(case.settings(), interventions="inferred")
    if implementation == SAME_NODES and fields is None:
        fields = _trainer(case, "canet", task, device, epochs).fields
    method = "canet" if is_canet else "erm"
    threads = torch.get_num_threads()
    return Trainer(
        task, method, case.backbone, settings, device.type, epochs, fields, threads=threads
    )


def _engine(
    case: Case, implementation: str, task: ShiftTask, device: torch.device, seconds: float
) -> dict[str, Any]:
    """Do a short warm-up run that estimates the time per epoch, then the measured run.

    The process keeps freed memory, as the processes of the command line do.
    """
    keep_freed_memory()
    between = EPOCHS_BETWEEN_CHECKS if device.type == "cuda" else 1
    short = _trainer(case, implementation, task, device, WARM_UP_CHECKS * between)
    clock = Clock()
    short.run(on_progress=clock)
    wanted = round(seconds / min(clock.times()))
    epochs = max(MIN_EPOCHS[device.type], min(MAX_EPOCHS[device.type], wanted)) // between * between
    trainer = _trainer(case, implementation, task, device, epochs + between, short.fields)
    clock = Clock()
    begin = time.perf_counter()
    run = trainer.run(on_progress=clock)
    measured = {
        "times": clock.times(),
        "run_seconds": time.perf_counter() - begin,
        "run_epochs": epochs + between,
    }
    train, valid = (trainer.fields.batch(split) for split in ("train", "valid"))
    cost = epoch_cost(run.method.model, train, valid)
    return measured | {"cost": [(op.flops, op.bytes) for op in cost]}

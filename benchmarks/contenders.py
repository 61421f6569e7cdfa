"""What is measured: the plain equations, ERM on our engine, CaNet on our engine, with and without
interventions.

Where CaNet's estimator reads nodes that ERM does not, ERM is also measured on all that CaNet reads:
the one ratio tells what the method costs, the other what its layers do.

An epoch is a training step and the validation score. The plain one is timed epoch by epoch, and a
GPU is waited for after each. Our engine on a GPU replays a recorded epoch and looks at numbers
only now and then, so it is timed as its users see it: the clock between two looks, divided by the
epochs between. What comes before the first look (recording, filling caches) is warm-up for the
time of an epoch, and part of the time of a run, which is told apart.
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
from canet.training import Trainer
from canet.training.fields import TaskFields
from canet.training.loop import EPOCHS_BETWEEN_CHECKS
from canet.util.memory import keep_freed_memory

SAME_NODES = "erm on the same nodes"
INTERVENING = "canet with interventions"
CONTENDERS = ("plain", "erm", SAME_NODES, "canet", INTERVENING)
PUBLISHED_EPOCHS = 500
LOOKS = 3  # on a GPU, of the run that warms up: recorded before the first, timed after
FEWEST = {"cpu": 3, "cuda": 60}
MOST = {"cpu": 50, "cuda": PUBLISHED_EPOCHS - EPOCHS_BETWEEN_CHECKS}
MIN_PLAIN, MAX_PLAIN = 2, 100


class Clock:
    """The progress of a run as times per epoch."""

    def __init__(self) -> None:
        self._moments: list[tuple[int, float]] = []

    def __call__(self, done: int, total: int, score: float) -> None:
        self._moments.append((done, time.perf_counter()))

    def times(self) -> list[float]:
        """Seconds per epoch between two calls; what came before the first is warm-up."""
        pairs = zip(self._moments, self._moments[1:], strict=False)
        return [(b - a) / (after - before) for (before, a), (after, b) in pairs]


def measure(
    case: Case, contender: str, task: ShiftTask, device: torch.device, seconds: float
) -> dict[str, Any]:
    """Times per epoch and peak memory of a contender, or that it died for memory.

    Args:
        case, contender: What is measured.
        task: The case's task.
        device: Where.
        seconds: About how long to measure, warm-up aside.
    """
    meter = Meter(device)
    try:
        if contender == "plain":
            measured = _plain(case, task, device, seconds)
        else:
            measured = _engine(case, contender, task, device, seconds)
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
    while len(times) < MIN_PLAIN or (sum(times) < seconds and len(times) < MAX_PLAIN):
        times.append(epoch())
    return {"times": times}


def _trainer(
    case: Case,
    contender: str,
    task: ShiftTask,
    device: torch.device,
    epochs: int,
    fields: TaskFields | None = None,
) -> Trainer:
    of_canet = contender in ("canet", INTERVENING)
    settings: Settings = case.settings() if of_canet else case.erm_settings()
    if contender == INTERVENING:
        settings = replace(case.settings(), interventions="inferred")
    if contender == SAME_NODES and fields is None:
        fields = _trainer(case, "canet", task, device, epochs).fields
    method = "canet" if of_canet else "erm"
    threads = torch.get_num_threads()
    return Trainer(
        task, method, case.backbone, settings, device.type, epochs, fields, threads=threads
    )


def _engine(
    case: Case, contender: str, task: ShiftTask, device: torch.device, seconds: float
) -> dict[str, Any]:
    """A short run that warms up and tells how long an epoch takes, then the one that counts.

    The process keeps freed memory, as those of the command line do.
    """
    keep_freed_memory()
    between = EPOCHS_BETWEEN_CHECKS if device.type == "cuda" else 1
    short = _trainer(case, contender, task, device, LOOKS * between)
    clock = Clock()
    short.run(on_progress=clock)
    wanted = round(seconds / min(clock.times()))
    epochs = max(FEWEST[device.type], min(MOST[device.type], wanted)) // between * between
    trainer = _trainer(case, contender, task, device, epochs + between, short.fields)
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

"""One job after the other: in this process, or in one that takes jobs from its standard input.

A worker process reads lines of JSON, each with jobs to run side by side, and answers with such
lines. It ends at once when its input does, so that none outlives the process that started it,
however that one ended.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from canet.errors import CanetError
from canet.files import read_json, write_json
from canet.memory import keep_freed_memory
from canet.runs.claims import Claim, clear_claims, take_claim
from canet.runs.evaluate import open_trainer
from canet.training import RunConfig, RunFolder, Trainer
from canet.training.loop import Progress

FAILURE = "failed.json"
LINES_OF_FAILURE = 12
SECONDS_BETWEEN_MESSAGES = 0.25


class ClaimLost(Exception):
    """Another process took this one for dead and works on its job now."""


def job_folder(root: Path, config: RunConfig) -> RunFolder:
    """Where a job's run is kept: a folder named after its content, one below for its seed."""
    return RunFolder(root / config.name / f"seed-{config.seed}")


def write_failure(place: RunFolder, lines: list[str]) -> None:
    write_json(place.path / FAILURE, {"lines": lines})


def read_failure(place: RunFolder) -> list[str] | None:
    """The last lines of a failed job; None if it has not failed."""
    try:
        lines: list[str] = read_json(place.path / FAILURE)["lines"]
    except FileNotFoundError:
        return None
    return lines


def is_over(place: RunFolder) -> bool:
    """Whether a job is finished or has failed."""
    return place.finished or read_failure(place) is not None


def data_of(config: RunConfig) -> tuple[Any, ...]:
    """What a job's task depends on: jobs that agree in it can share a loaded task."""
    return config.task, config.protocol, config.data_seed, config.features, config.inductive


class JobRunner:
    """Runs jobs in this process and keeps the task and the trainer of the last one.

    Args:
        root: Folder of all jobs.
        device: `auto`, `cpu` or `cuda`.
        data_root: Folder with raw data.
    """

    def __init__(self, root: Path, device: str, data_root: Path | None) -> None:
        self.sound = True  # false after an error that may have left the device unusable
        self._root, self._device, self._data_root = root, device, data_root
        self._trainer: Trainer | None = None

    def run(self, configs: Sequence[RunConfig], on_progress: Progress) -> None:
        """Run jobs that differ in their seed alone, save those that somebody else has.

        Their folders tell afterwards what came of them.
        """
        places = {config.seed: job_folder(self._root, config) for config in configs}
        claims: list[Claim] = []
        left: dict[int, RunFolder] = {}

        def report(done: int, total: int, score: float) -> None:
            if any(claim.lost for claim in claims):
                raise ClaimLost
            on_progress(done, total, score)

        with ExitStack() as held:
            for seed, place in places.items():
                if claim := take_claim(place.path):
                    claims.append(held.enter_context(claim))
                    if not is_over(place):
                        left[seed] = place
            if left:
                with suppress(ClaimLost):
                    self._train(configs[0], left, report)
        for place in places.values():
            if place.finished:
                clear_claims(place.path)

    def _train(
        self, config: RunConfig, places: Mapping[int, RunFolder], on_progress: Progress
    ) -> None:
        for place in places.values():
            for unfinished in place.path.glob(".*.tmp"):  # left by a process that was killed
                unfinished.unlink(missing_ok=True)
        folders = {seed: place.path for seed, place in places.items()}
        try:
            self._open(config).run_together(folders, config.ood_curves, on_progress)
            return
        except ClaimLost:
            raise
        except Exception as error:
            self._trainer = None
            self.sound &= isinstance(error, CanetError)
            lines = _last_lines(error)
        left = {seed: place for seed, place in places.items() if not place.finished}
        if len(places) == 1:
            for place in left.values():
                write_failure(place, lines)
        else:  # which of them it was shows when each is trained alone
            for seed, place in left.items():
                self._train(replace(config, seed=seed), {seed: place}, on_progress)

    def _open(self, config: RunConfig) -> Trainer:
        """The trainer of a job, with whatever the last one has loaded already."""
        last, seed, curves = self._trainer, config.seed, config.ood_curves
        if last and last.config(seed, curves) == config:
            return last
        self._trainer = None
        loaded = last.task if last and data_of(last.config()) == data_of(config) else None
        trainer = open_trainer(config, self._device, self._data_root, loaded)
        if trainer.config(seed, curves) != config:
            raise CanetError(
                f"job {config.name} does not say what its run is: give all settings of "
                f"'{config.method}', and features as the task names them"
            )
        torch.cuda.empty_cache()  # other workers may need what the last trainer held
        self._trainer = trainer
        return trainer


def _last_lines(error: Exception) -> list[str]:
    if isinstance(error, CanetError):
        return [str(error)]
    return "".join(traceback.format_exception(error)).splitlines()[-LINES_OF_FAILURE:]


def main() -> None:
    """Take jobs from standard input until it ends."""
    keep_freed_memory()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    last_message = 0.0

    def say(**message: Any) -> None:
        print(json.dumps(message), file=answers, flush=True)

    def report(done: int, total: int, score: float) -> None:
        nonlocal last_message
        if time.monotonic() - last_message > SECONDS_BETWEEN_MESSAGES:
            last_message = time.monotonic()
            say(fraction=done / total, score=score)

    place = orders.get()
    data_root = Path(place["data_root"]) if place["data_root"] else None
    runner = JobRunner(Path(place["root"]), place["device"], data_root)
    say(ready=True)
    while runner.sound:
        runner.run([RunConfig(**content) for content in orders.get()], report)
        say(sound=runner.sound)


def _listen(orders: queue.SimpleQueue[Any]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)  # in the middle of a job too: it goes on from its checkpoint

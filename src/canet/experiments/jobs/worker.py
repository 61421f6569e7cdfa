"""One job after the other: in this process, or in one that takes jobs from its standard input.

A worker process reads a line of JSON for each job and answers with lines of JSON. It ends at once
when its input does, so that none outlives the process that started it, however that one ended.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from canet.errors import CanetError
from canet.experiments.evaluate import open_trainer
from canet.experiments.jobs.claims import Claim, clear_claims, take_claim
from canet.files import read_json, write_json
from canet.methods import get_method
from canet.settings import override
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

    def run(self, config: RunConfig, on_progress: Progress) -> None:
        """Run a job unless somebody else has it; its folder tells afterwards what came of it."""
        place = job_folder(self._root, config)
        claim = take_claim(place.path)
        if claim is None:
            return
        with claim:
            if not place.finished and read_failure(place) is None:
                self._run_claimed(config, place, claim, on_progress)
        if place.finished:
            clear_claims(place.path)

    def _run_claimed(
        self, config: RunConfig, place: RunFolder, claim: Claim, on_progress: Progress
    ) -> None:
        def report(done: int, total: int, score: float) -> None:
            if claim.lost:
                raise ClaimLost
            on_progress(done, total, score)

        for unfinished in place.path.glob(".*.tmp"):  # left by a process that was killed
            unfinished.unlink(missing_ok=True)
        try:
            self._open(config).run(config.seed, place.path, config.ood_curves, report)
        except ClaimLost:
            pass
        except Exception as error:
            self._trainer = None
            self.sound = isinstance(error, CanetError)
            write_failure(place, _last_lines(error))

    def _open(self, config: RunConfig) -> Trainer:
        """The trainer of a job, with whatever the last one has loaded already."""
        last, seed, curves = self._trainer, config.seed, config.ood_curves
        if last and last.config(seed, curves) == config:
            return last
        self._trainer = None
        if last and data_of(last.config()) == data_of(config):
            settings = override(get_method(config.method).settings_type(), config.settings)
            trainer = Trainer(last.task, config.method, config.backbone, settings, self._device)
        else:
            trainer = open_trainer(config, self._device, self._data_root)
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
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
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
        runner.run(RunConfig(**orders.get()), report)
        say(sound=runner.sound)


def _listen(orders: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)  # in the middle of a job too: it goes on from its checkpoint

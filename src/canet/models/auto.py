"""`auto`: train the models of a preset under simulated shifts, and average the best ones."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

import torch
from torch import Tensor

from canet.data.metrics import METRICS
from canet.data.task import ShiftTask
from canet.errors import CanetError, InputError, warn_user
from canet.methods import Auto, AutoSettings
from canet.methods.interventions import InterventionWarning
from canet.models.ensemble import Ensemble
from canet.models.portfolio import PRESETS, RECIPES, Recipe
from canet.models.shifts import HELD_OUT, SimulatedShift, simulate_shifts
from canet.store.config import RunConfig
from canet.store.result import Candidate, RunResult
from canet.store.run_folder import RunFolder
from canet.store.summary import OOD
from canet.training import Callback, Run, Trainer
from canet.training.fields import TaskFields
from canet.training.loop import Progress
from canet.training.trainer import peak_memory_mb, versions
from canet.util.devices import device_name, pick_device
from canet.util.files import WriteError
from canet.util.jobs import Pool, WorkerDied, run_all
from canet.util.seeds import checked_seed
from canet.util.torch_state import seeded

MAX_MEMBERS = 5
WORK_FOLDER = ".candidates"
"""Folder of the finished trainings of an unfinished run."""
Logits: TypeAlias = dict[str, Tensor]
"""Name of a split → logits $[n, C]$, on the CPU."""


class TrainedCandidate(NamedTuple):
    """A candidate with its scores, and its method trained on all training nodes."""

    candidate: Candidate
    method: Any
    logits: Logits


class _Job(NamedTuple):
    """A model to train without the held-out part of a shift.

    Args:
        recipe: The model.
        shift: Number of the shift; 0: nothing is held out.
        seed: Seed of the training.
        name: Folder of the run, relative to that of all jobs.
        done: Whether the run is finished.
    """

    recipe: Recipe
    shift: int
    seed: int
    name: str
    done: bool = False


class _Training(NamedTuple):
    """The result of one training; with method and logits only if nothing was held out."""

    validation: float = math.nan
    held_out: float = math.nan
    seconds: float = 0.0
    method: Any = None
    logits: Logits = {}  # noqa: RUF012  # never changed
    failure: str = ""


class AutoTrainer:
    """Chooses a model for a task, with the interface of :class:`Trainer`.

    Every model of the preset is trained once on all training nodes, and once for each part that
    `simulate_shifts` holds out. Its rating is the mean of two numbers: the score on the validation
    nodes, and the mean score on the held-out parts. The result is the average of the probabilities
    of the best models: half of them, at most five.

    Args:
        task: The task; its test labels are only used to score the result. A graph store is read
            into memory.
        settings: The preset, and the settings that all models share.
        device, class_weight, threads, callbacks: As for :class:`Trainer`. Callbacks are only called
            without a pool.
        time_limit: Seconds after which no further model is started; one is always trained.
        pool: Processes or machines that train. None: this process.
    """

    together = False
    backbone = "auto"

    def __init__(
        self,
        task: ShiftTask,
        settings: AutoSettings | None = None,
        device: str | torch.device = "auto",
        class_weight: Tensor | None = None,
        threads: int = 1,
        time_limit: float | None = None,
        pool: Pool | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.task = task.in_memory()
        self.settings = settings or AutoSettings()
        self.device = pick_device(device)
        self.class_weight, self.threads = class_weight, threads
        self.time_limit, self.pool = time_limit, pool
        self.callbacks = tuple(callbacks)

    def config(self, seed: SupportsIndex = 0, ood_curves: bool = False) -> RunConfig:
        """Return the complete configuration of a run with this seed."""
        config = self.trainer(self.task, RECIPES[0]).config(seed)
        settings = asdict(self.settings)
        return replace(config, method=Auto.name, backbone=self.backbone, settings=settings)

    def run(
        self,
        seed: SupportsIndex = 0,
        folder: str | Path | None = None,
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> Run:
        """Choose a model with one seed.

        Args:
            seed: Seed of all trainings.
            folder: Folder of the run. An unfinished run there is resumed.
            ood_curves: Must be False: an average of models has no epochs.
            on_progress: Called with (finished trainings, all trainings, last validation score).
        """
        seed = checked_seed(seed)
        run_folder = None if folder is None else RunFolder(Path(folder))
        if ood_curves:
            raise InputError("method 'auto' has no scores per epoch: leave out --ood-curves")
        work = None
        if run_folder:
            run_folder.begin(self.config(seed), self.trainer(self.task, RECIPES[0]).digest)
            work = run_folder.path / WORK_FOLDER
            if run_folder.finished:
                shutil.rmtree(work, ignore_errors=True)
                return Run(self.config(seed), run_folder.read_result(), {}, self.load(run_folder))
        begin, tried = time.monotonic(), list(self.try_all(seed, work, on_progress))
        if not tried:
            raise CanetError("no model could be trained: see the warnings above for the reasons")
        candidates = with_weights([one.candidate for one in tried])
        pairs = zip(tried, candidates, strict=True)
        chosen = [(one, candidate.weight) for one, candidate in pairs if candidate.weight]
        ensemble = Ensemble([one.method for one, _ in chosen], [weight for _, weight in chosen])
        epochs = self.settings.epochs * len(tried)
        result = RunResult(
            scores=self._scores(ensemble, [one.logits for one, _ in chosen]),
            selection="best rating",
            selected_epoch=0,
            environments_seen=None,
            epochs=epochs,
            seconds_per_epoch=(time.monotonic() - begin) / epochs,
            peak_memory_mb=peak_memory_mb(self.device),
            device=device_name(self.device, self.threads),
            versions=versions(),
            candidates=candidates,
        )
        if run_folder and work:
            run_folder.finish(ensemble.state_dict(), {}, result)
            shutil.rmtree(work, ignore_errors=True)
        return Run(self.config(seed), result, {}, ensemble.to(self.device).eval())

    def run_together(
        self,
        folders: Mapping[int, str | Path | None],
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> list[Run]:
        """Choose a model for each of several seeds, one after the other."""
        return [self.run(s, folder, ood_curves, on_progress) for s, folder in folders.items()]

    def try_all(
        self, seed: int, work: Path | None = None, on_progress: Progress | None = None
    ) -> Iterator[TrainedCandidate]:
        """Train the models of the preset in their order, until the time limit."""
        if work is None and self.pool:
            with tempfile.TemporaryDirectory(prefix="canet-") as folder:
                yield from self.try_all(seed, Path(folder), on_progress)
            return
        recipes = PRESETS[self.settings.preset]
        shifts = [None, *simulate_shifts(self.task)]
        finished = self._trainings(recipes, shifts, seed, work)
        for number, recipe in enumerate(recipes):
            found = list[_Training]()
            for one in islice(finished, len(shifts)):
                found.append(one)
                if on_progress:
                    done = number * len(shifts) + len(found)
                    on_progress(done, len(recipes) * len(shifts), found[0].validation)
            if not found:
                return
            if failure := next((one.failure for one in found if one.failure), ""):
                text = f"model '{recipe.name}' is left out: {failure}"
                warn_user(text)
                continue
            names = [shift.name for shift in shifts if shift]
            candidate = Candidate(
                name=recipe.name,
                method=recipe.method,
                backbone=recipe.backbone,
                settings=asdict(recipe.settings(self.settings)),
                validation=found[0].validation,
                shifts={n: one.held_out for n, one in zip(names, found[1:], strict=True)},
                weight=0.0,
                seconds=sum(one.seconds for one in found),
            )
            yield TrainedCandidate(candidate, found[0].method, found[0].logits)

    def load(self, run_folder: RunFolder) -> Ensemble:
        """Load the ensemble of a finished run of this task and these settings."""
        run_folder.check_data(self.trainer(self.task, RECIPES[0]).digest)
        task, candidates = self.task, run_folder.read_result().candidates
        sizes = task.num_features, task.num_classes, task.training_environments().numel()
        ensemble = Ensemble.empty(candidates, sizes).to_empty(device=self.device)
        run_folder.load_weights(ensemble)
        return ensemble.eval()

    def scores(self, ensemble: Ensemble) -> dict[str, float]:
        """Return the score of every split, by its name in `task.splits()`."""
        found = []
        with seeded(0, self.device, self.threads):
            for member in ensemble.eval().members:
                model, how = member.model, member.settings.scaling
                fields = TaskFields(self.task, model.operators, model.num_layers, self.device, how)
                found.append(_on_cpu(fields.logits(member)))
        return self._scores(ensemble, found)

    def _scores(self, ensemble: Ensemble, found: Sequence[Logits]) -> dict[str, float]:
        metric, y = METRICS[self.task.metric], self.task.data.y
        return {
            split: float(metric(ensemble.cpu().combine([one[split] for one in found]), y[nodes]))
            for split, nodes in self.task.splits().items()
        }

    def trainer(self, task: ShiftTask, recipe: Recipe, part: str = "") -> Trainer:
        """Return the trainer of one model."""
        return Trainer(
            task,
            recipe.method,
            recipe.backbone,
            recipe.settings(self.settings),
            self.device,
            class_weight=self.class_weight,
            threads=self.threads,
            callbacks=[_named(callback, f"{recipe.name} {part}") for callback in self.callbacks],
        )

    def _trainings(
        self,
        recipes: Sequence[Recipe],
        shifts: Sequence[SimulatedShift | None],
        seed: int,
        work: Path | None,
    ) -> Iterator[_Training]:
        """Train every model with every shift, in this order."""
        begin = time.monotonic()

        def in_time() -> bool:
            return self.time_limit is None or time.monotonic() - begin < self.time_limit

        jobs = (
            _Job(recipe, k, seed, f"{i}/{k}/seed-{seed}")
            for i, recipe in enumerate(recipes)
            if not i or in_time()
            for k in range(len(shifts))
        )
        if self.pool is None or work is None:
            for job in jobs:
                yield self._train(shifts[job.shift], job, work and work / job.name)
            return
        alone = copy(self)
        alone.pool = None
        known = (j._replace(done=RunFolder(work / j.name).finished) for j in jobs)
        for job, found in run_all(
            self.pool, _train_job, known, shared=(alone, shifts), root=work, in_order=True
        ):
            if isinstance(found, WorkerDied):
                raise found
            yield found or self._train(shifts[job.shift], job, work / job.name)

    def _train(self, shift: SimulatedShift | None, job: _Job, folder: Path | None) -> _Training:
        """Train a model, without the held-out part of a shift."""
        begin = time.monotonic()
        task, part = (shift.task, shift.name) if shift else (self.task, "")
        trainer = self.trainer(task, job.recipe, part)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InterventionWarning)
                run = trainer.run(job.seed, folder)
        except WriteError:
            raise
        except CanetError as error:
            return _Training(failure=str(error))
        scores, method, logits = run.result.scores, None, {}
        if not shift:
            with seeded(0, self.device, self.threads):
                logits = _on_cpu(trainer.fields.logits(run.method.eval()))
            method = run.method.cpu()
        held_out = scores.get(f"{OOD}{HELD_OUT}", 0.0)
        if not math.isfinite(held_out):
            return _Training(failure="its predictions on a held-out part are not finite")
        return _Training(scores["valid"], held_out, time.monotonic() - begin, method, logits)


def _train_job(
    shared: tuple[AutoTrainer, Sequence[SimulatedShift | None]], job: _Job, work: Path
) -> _Training | None:
    """Train in a worker; None if the run is finished, because its files may not be here."""
    trainer, shifts = shared
    return None if job.done else trainer._train(shifts[job.shift], job, work / job.name)


def with_weights(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Give equal weights to the best half by rating, at most five; 0 to the others."""
    count = min(MAX_MEMBERS, math.ceil(len(candidates) / 2))
    members = sorted(range(len(candidates)), key=lambda i: (-candidates[i].rating, i))[:count]
    return [
        replace(one, weight=1 / count if i in members else 0.0) for i, one in enumerate(candidates)
    ]


def _named(callback: Callback, model: str) -> Callback:
    """Return a callback that gets this name of the model."""
    return lambda facts: callback(facts | {"model": model.strip()})


def _on_cpu(found: Mapping[str, tuple[Tensor, Tensor]]) -> Logits:
    return {split: logits.cpu() for split, (logits, _) in found.items()}

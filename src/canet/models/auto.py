"""`auto`: train the models of a preset under simulated shifts, and average the best ones."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

from canet.data.task import ShiftTask
from canet.errors import CanetError, ChecksumError, warn_user
from canet.methods import Settings
from canet.methods.interventions import InterventionWarning
from canet.models.average import Average
from canet.models.base import Fitted, Learner
from canet.models.portfolio import NEWEST, PRESETS, Recipe
from canet.models.shifts import HELD_OUT, SimulatedShift, simulate_shifts
from canet.settings import setting
from canet.store.result import Candidate
from canet.store.run_folder import CONFIG, RunFolder
from canet.store.summary import OOD
from canet.training import Callback
from canet.training.loop import Progress
from canet.util.colour import Colour
from canet.util.files import WriteError
from canet.util.jobs import WorkerDied, run_all

CPU = torch.device("cpu")
MAX_MEMBERS = 5


@dataclass(frozen=True)
class AutoSettings(Settings):
    """Settings of `auto`. A model of the preset may override those of all methods."""

    preset: str = setting(
        "robust",
        "models to compare: fast (a few), robust (a dozen) or best (all); a number selects a "
        "fixed version",
        choices=(*NEWEST, *PRESETS),
    )
    time_limit: float = setting(1e6, "seconds after which no further model is started", minimum=0)
    dropout: float = setting(0.5, "dropout probability", minimum=0, below=1)
    epochs: int = setting(200, "number of training epochs of each model", minimum=1)

    in_batches = False  # the models share the graph in memory

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "preset", NEWEST.get(self.preset, self.preset))


class Tried(NamedTuple):
    """A candidate with its scores, and the model that was trained on all training nodes.

    `epochs` counts those of all its trainings.
    """

    candidate: Candidate
    model: Fitted
    epochs: int


class _Job(NamedTuple):
    """A model to train without a held-out part.

    Args:
        model: Number of the model in the preset.
        recipe: The model.
        part: Number of the held-out part, from 1; 0: nothing is held out.
        seed: Seed of the training.
        done: Whether the run is finished.
    """

    model: int
    recipe: Recipe
    part: int
    seed: int
    done: bool = False

    def folder(self, root: Path) -> Path:
        """Return the run folder of the job."""
        return root / str(self.model) / str(self.part) / f"seed-{self.seed}"


class _Trained(NamedTuple):
    """The result of one training, with the model if it was trained in this process."""

    validation: float = math.nan
    held_out: float = math.nan
    seconds: float = 0.0
    epochs: int = 0
    model: Fitted | None = None
    failure: str = ""


class Auto(Learner):
    """Chooses models for a task and averages them.

    Every model of the preset is trained once on all training nodes, and once for each part that
    `simulate_shifts` holds out. Its rating is the mean of two numbers: the score on the validation
    nodes, and the mean score on the held-out parts. The result is the average of the probabilities
    of the best models: half of them, at most five.

    Args:
        settings: The preset, and the settings that all models share.
        options: How to train. Callbacks are only called without a pool.
    """

    name = "auto"
    label = "Auto"
    colour = Colour("#000000", "#e6e6e6")
    summary = "averages the models that score best on held-out parts of the training data"
    paper = "No paper; measured on https://canet-dev.github.io/canet/results/choice/"
    trains_several = True
    settings_type = AutoSettings
    settings: AutoSettings

    def fit(
        self,
        task: ShiftTask,
        seed: int = 0,
        *,
        initial: Fitted | None = None,
        work: Path | None = None,
        on_progress: Progress | None = None,
    ) -> Fitted:
        """Choose and train; with an `initial` average, train its members again."""
        task = task.in_memory()
        if initial is not None:
            return self._continue(task, initial, seed, on_progress)
        tried = list(self.try_all(task, seed, work, on_progress))
        if not tried:
            raise CanetError("no model could be trained: see the warnings above for the reasons")
        candidates = with_weights([one.candidate for one in tried])
        pairs = zip(tried, candidates, strict=True)
        chosen = [(one.model, candidate.weight) for one, candidate in pairs if candidate.weight]
        average = Average(*zip(*chosen, strict=True)).to(self.device)
        average.candidates = candidates
        average.epochs = sum(one.epochs for one in tried)
        return average

    def try_all(
        self,
        task: ShiftTask,
        seed: int,
        work: Path | None = None,
        on_progress: Progress | None = None,
    ) -> Iterator[Tried]:
        """Train the models of the preset in their order, until the time limit."""
        if work is None and self.options.pool:
            with tempfile.TemporaryDirectory(prefix="canet-") as folder:
                yield from self.try_all(task, seed, Path(folder), on_progress)
            return
        recipes = PRESETS[self.settings.preset]
        tasks = _Tasks(task, simulate_shifts(task))
        count = 1 + len(tasks.shifts)
        finished = self._trainings(tasks, recipes, seed, work)
        for number, recipe in enumerate(recipes):
            found = list[_Trained]()
            for one in islice(finished, count):
                found.append(one)
                if on_progress:
                    done = number * count + len(found)
                    on_progress(done, len(recipes) * count, found[0].validation)
            if not found:
                return
            if failure := next((one.failure for one in found if one.failure), ""):
                warn_user(f"model '{recipe.name}' is left out: {failure}")
                continue
            held_out = zip(tasks.shifts, found[1:], strict=True)
            candidate = Candidate(
                name=recipe.name,
                validation=found[0].validation,
                shifts={shift.name: one.held_out for shift, one in held_out},
                weight=0.0,
                seconds=sum(one.seconds for one in found),
            )
            assert found[0].model is not None
            yield Tried(candidate, found[0].model, sum(one.epochs for one in found))

    def _trainings(
        self, tasks: _Tasks, recipes: Sequence[Recipe], seed: int, work: Path | None
    ) -> Iterator[_Trained]:
        """Train every model with every held-out part, in this order."""
        begin, limit = time.monotonic(), self.settings.time_limit
        jobs = (
            _Job(i, recipe, part, seed)
            for i, recipe in enumerate(recipes)
            if not i or time.monotonic() - begin < limit
            for part in range(1 + len(tasks.shifts))
        )
        pool = self.options.pool
        if pool is None or work is None:
            yield from (self._train(tasks, job, work) for job in jobs)
            return
        alone = Auto(self.settings, replace(self.options, pool=None))
        known = (job._replace(done=_is_finished(job.folder(work))) for job in jobs)
        shared = alone, tasks
        for job, found in run_all(pool, _train, known, shared=shared, root=work, in_order=True):
            if isinstance(found, WorkerDied):
                raise found
            if found is None or not (job.part or found.failure):
                read = self._train(tasks, job, work)  # from the files of the finished run
                found = found._replace(model=read.model) if found else read
            yield found

    def _train(self, tasks: _Tasks, job: _Job, root: Path | None) -> _Trained:
        """Train a model, without a held-out part."""
        shift = tasks.shifts[job.part - 1] if job.part else None
        learner = self._learner(job, shift.name if shift else "")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InterventionWarning)
                folder = root and job.folder(root)
                if folder:
                    _is_finished(folder)
                (fitted,) = learner.run(shift.task if shift else tasks.task, {job.seed: folder})
        except WriteError:
            raise
        except CanetError as error:
            return _Trained(failure=str(error))
        assert fitted.result is not None
        result, scores = fitted.result, fitted.result.scores
        held_out = scores.get(f"{OOD}{HELD_OUT}", 0.0)
        if not math.isfinite(held_out):
            return _Trained(failure="its predictions on a held-out part are not finite")
        model = None if shift else fitted.to(CPU)
        return _Trained(scores["valid"], held_out, result.seconds, result.epochs, model)

    def _learner(self, job: _Job, part: str = "") -> Learner:
        """Return the learner of a job."""
        name = f"{job.recipe.name} {part}"
        named = [_named(callback, name) for callback in self.options.callbacks]
        options = replace(self.options, callbacks=named, pool=None)
        return job.recipe.learner(self.settings, options)

    def _continue(
        self, task: ShiftTask, initial: Fitted, seed: int, on_progress: Progress | None
    ) -> Fitted:
        """Train each member of an average again, from its weights, and keep their weights."""
        assert isinstance(initial, Average)
        members, trained = list[Fitted](), list[Candidate]()
        chosen = [candidate for candidate in initial.candidates if candidate.weight]
        for member, candidate in zip(initial.members, chosen, strict=True):
            learner = member.learner(self.settings, self.options)
            fitted = learner.fit(task, seed, initial=member)
            assert fitted.result is not None
            members.append(fitted.to(CPU))
            validation, seconds = fitted.result.scores["valid"], fitted.result.seconds
            trained.append(replace(candidate, validation=validation, shifts={}, seconds=seconds))
            if on_progress:
                on_progress(len(members), len(chosen), validation)
        average = Average(members, initial.weights).to(self.device)
        average.candidates = trained
        average.epochs = sum(member.epochs for member in members)
        return average


@dataclass(frozen=True)
class _Tasks:
    """A task, and its simulated shifts."""

    task: ShiftTask
    shifts: Sequence[SimulatedShift]


def _is_finished(folder: Path) -> bool:
    """Whether a training is finished. A damaged one is removed, so that it starts again."""
    run, problems = RunFolder(folder), list[str]()
    try:
        if run.finished:
            problems = run.problems()
        elif (folder / CONFIG).exists():
            run.read_config()
    except ChecksumError as error:
        problems = [str(error)]
    if problems:
        warn_user(f"a part of the choice is trained again: {problems[0]}")
        shutil.rmtree(folder)
    return run.finished


def _train(shared: tuple[Auto, _Tasks], job: _Job, root: Path) -> _Trained | None:
    """Train in a worker; None if the run is finished, because its files may not be here."""
    auto, tasks = shared
    return None if job.done else auto._train(tasks, job, root)._replace(model=None)


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

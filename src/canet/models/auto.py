"""`auto`: compare models under simulated shifts, and average them by what they predict there."""

import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from signal import SIGINT
from statistics import mean
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

from canet.data.task import MAX_SCORED, ShiftTask
from canet.errors import CanetError, ChecksumError, InputError, warn_user
from canet.methods import Settings, Traits
from canet.methods.interventions import InterventionWarning
from canet.models.average import Average
from canet.models.base import SCORE_LINE, Fitted, Learner, Training, logger
from canet.models.boosting import import_boosting
from canet.models.options import OutOfTime
from canet.models.parts import NUM_HELD_OUT, VALID, Logits, Parts, weights_of
from canet.models.portfolio import Recipe, parse_preset, recipes_of
from canet.reading.prepared import forget_large
from canet.reading.scaling import CPU
from canet.settings import setting
from canet.store.result import Candidate
from canet.store.run_folder import CONFIG, RunFolder
from canet.training.loop import Progress
from canet.util.colour import Colour
from canet.util.files import WriteError
from canet.util.jobs import Pool, WorkerDied, run_all
from canet.util.processes import Processes
from canet.util.progress import expect
from canet.util.signals import received_signal

NO_LIMIT = 1e6
LATE = "the time limit was reached"
STOPPED = "the comparison was stopped"
AVERAGE, LARGEST_CLASS = "average of the members", "largest class"


@dataclass(frozen=True)
class AutoSettings(Settings):
    """Settings of `auto`. A model of the preset may override those of all networks."""

    preset: str = setting(
        "robust",
        "models to compare: linear models, trees and networks (robust), without networks (fast), "
        "or names such as linear,erm-sage",
    )
    time_limit: float = setting(
        NO_LIMIT, "seconds after which no more models are compared", minimum=0
    )
    dropout: float = setting(0.5, "dropout probability", minimum=0, below=1)
    epochs: int = setting(200, "number of training epochs of each network", minimum=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "preset", ",".join(parse_preset(self.preset)))
        super().__post_init__()

    @property
    def reads_raw(self) -> bool:
        return False  # some of the models standardise the columns


class Tried(NamedTuple):
    """A model that was trained on all training nodes and without each held-out part.

    Args:
        name: Name of the model.
        model: The model that was trained on all training nodes; None if a training failed.
        logits: What it predicts for each part.
        seconds: Time of all trainings.
        epochs: Number of epochs of all trainings.
        failure: Why a training failed.
    """

    name: str
    model: Fitted | None = None
    logits: Logits = MappingProxyType({})
    seconds: float = 0.0
    epochs: int = 0
    failure: str = ""

    @property
    def score(self) -> float:
        """The score of the validation nodes, or NaN."""
        result = self.model and self.model.result
        return result.scores[VALID] if result else math.nan


class Auto(Learner):
    """Compares models on a task and averages them.

    Every model of the preset is trained on all training nodes, and again without each of two
    held-out parts. These are the parts of `simulate_shifts` that are the hardest for the first
    model, a linear one. The likelihood L of a model is the mean logarithm of the probability of the
    right class, over the validation nodes and each held-out part. The result is the average of the
    probabilities of the models, with weights in proportion to exp(L / 0.2).

    Args:
        settings: The preset, and the settings that all networks share.
        options: How to train. Callbacks are only called without a pool.
    """

    name = "auto"
    label = "Auto"
    colour = Colour("#000000", "#e6e6e6")
    summary = "averages models by how well they predict held-out parts of the training data"
    paper = "No paper; measured on https://canet-dev.github.io/canet/results/choice.html"
    traits = Traits(trains_in_batches=True, compares_models=True)
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
        in_batches = self.settings.in_batches
        task = task if in_batches else task.in_memory()
        if initial is not None:
            return self._continue(task, initial, seed, on_progress)
        parts = Parts(task, self.options.class_weight, sampled=in_batches)
        tried = list(self.try_all(parts, seed, work, on_progress))
        count, left_out = len(tried), [one for one in tried if one.failure]
        for one in left_out:
            if one.failure not in (LATE, STOPPED):
                warn_user(f"model '{one.name}' is left out: {one.failure}")
        if left_out and left_out[-1].failure in (LATE, STOPPED):
            compared = f"{count - len(left_out)} of {count} models were compared"
            warn_user(f"{left_out[-1].failure}: {compared}")
        average = average_of(parts, tried)
        epochs = sum(one.epochs for one in tried)
        average.training = Training(epochs, selection="held-out likelihood")
        average.is_complete = all(one.failure != STOPPED for one in tried)
        return average.to(self.device)

    @property
    def _trains_apart(self) -> bool:
        """Whether other processes train the models that do not use the GPU, at the same time."""
        is_alone = self.options.pool is None and (os.cpu_count() or 1) > 2
        return self.device.type == "cuda" and is_alone and not self.settings.in_batches

    def try_all(
        self, parts: Parts, seed: int, work: Path | None = None, on_progress: Progress | None = None
    ) -> Iterator[Tried]:
        """Train the models of the preset in their order; after the time limit, only name them."""
        limit = self.settings.time_limit if self.settings.time_limit < NO_LIMIT else math.inf
        deadline = (self.options.begin or time.time()) + limit
        expect(deadline - time.time())
        timed = Auto(self.settings, replace(self.options, pool=None, deadline=deadline))
        recipes = recipes_of(
            self.settings.preset, self.settings.in_batches, self.device.type, self._trains_apart
        )
        results = timed._results(parts, recipes, seed, work, self.options.pool, on_progress)
        finished = 0
        for recipe in recipes:
            one = Tried(recipe.name, failure=STOPPED)
            try:
                one = next(results, one)
            except KeyboardInterrupt:
                keeps = self.options.keep_on_interrupt and received_signal() in (None, SIGINT)
                if not (finished and keeps):
                    raise
            finished += not one.failure
            yield one

    def scores(self, task: ShiftTask, fitted: Fitted) -> dict[str, float]:
        """As `Learner.scores`; after the time limit, on a sample of each set if it is on disk."""
        if (self.options.begin or math.inf) + self.settings.time_limit < time.time():
            valid, test = (task.sampled(nodes, MAX_SCORED) for nodes in (task.valid, task.test_id))
            task = replace(task, valid=valid, test_id=test, checked=True)
        return super().scores(task, fitted)

    def _results(
        self,
        parts: Parts,
        recipes: Sequence[Recipe],
        seed: int,
        work: Path | None,
        pool: Pool | None,
        on_progress: Progress | None,
    ) -> Iterator[Tried]:
        """Try the models in their order until the deadline; the first one ends in any case.

        The first one is tried on all parts, and the others on those that are hard for it: with a
        pool in its workers, without one those that do not use the GPU in processes of their own.
        """
        count = len(recipes)

        def report(i: int, done: int, score: float) -> None:
            each = 1 + NUM_HELD_OUT
            if on_progress:
                on_progress(i * each + min(done, each), count * each, score)
            left = [recipes[i]] * (len(parts.tasks) - done) + [*recipes[i + 1 :]] * each
            if left and not jobs:
                expect(min(self._estimate(left), self.options.deadline - time.time()))

        apart = [i for i in range(1, count) if self._trains_apart and recipes[i].traits.on_cpu]
        jobs = list(range(1, count)) if pool else apart
        options = self.options if pool else replace(self.options, device="cpu", callbacks=())
        shared = Auto(self.settings, options), parts, seed
        workers = _processes(len(jobs)) if jobs and not pool else nullcontext(pool)
        with workers as helpers, TemporaryDirectory(prefix="canet-") as folder:
            first = self._try(parts, 0, recipes[0], seed, work, partial(report, 0))
            parts.keep_hardest(first.logits)
            yield first
            stored = {i for i in jobs if _is_stored(recipes[i], parts, seed, work)}
            due = (i for i in jobs if time.time() < self.options.deadline)
            new = ((i, recipes[i]) for i in due if i not in stored)
            found = run_all(helpers, _try, new, shared=shared, root=work or Path(folder))
            done: dict[int, Tried | WorkerDied | None] = {}
            for i, recipe in enumerate(recipes[1:], 1):
                while i in jobs and i not in stored and i not in done:
                    (number, _), result = next(found, ((i, recipe), None))
                    done[number] = result
                one = done.get(i)
                if isinstance(one, WorkerDied) and pool:
                    raise one
                if isinstance(one, Tried):
                    logger.info(SCORE_LINE, one.name, seed, one.score)
                    report(i, len(parts.tasks), one.score)
                elif i in stored or time.time() < self.options.deadline:
                    one = self._try(parts, i, recipe, seed, work, partial(report, i))
                yield one if isinstance(one, Tried) else Tried(recipe.name, failure=LATE)

    @cached_property
    def _trained(self) -> list[tuple[Recipe, float]]:
        """The models that were trained, one for each training, and its seconds."""
        return []

    def _estimate(self, waiting: Sequence[Recipe]) -> float:
        """Return the seconds of some trainings, by the means of networks and of other models."""
        known: dict[bool, list[float]] = {True: [], False: []}
        for one, seconds in self._trained:
            known[bool(one.backbone)].append(seconds)
        return sum(mean(known[bool(one.backbone)] or [math.inf]) for one in waiting)

    def _least(self, recipe: Recipe) -> float:
        """Return the least seconds of an earlier training of a model, or of a similar one."""
        own = [seconds for one, seconds in self._trained if one == recipe]
        return min(own or (s for one, s in self._trained if one.model == recipe.model), default=0.0)

    def _try(
        self,
        parts: Parts,
        number: int,
        recipe: Recipe,
        seed: int,
        work: Path | None,
        report: Callable[[int, float], None] | None = None,
    ) -> Tried:
        """Train a model of the preset on all training nodes, and without each held-out part."""
        tried, chosen = Tried(recipe.name), dict[str, Any]()
        for done, (part, task) in enumerate(parts.tasks.items(), 1):
            folder = work and _folder(work, recipe, parts.numbers[part], seed)
            try:
                learner, begin = self._learner(recipe, number, part, chosen), time.time()
                is_stored = folder and _is_finished(folder)
                learner.options.check_time(0.0 if is_stored else self._least(recipe))
                if task.data.is_on_disk and not recipe.traits.trains_in_batches:
                    raise InputError("it needs the graph in memory")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", InterventionWarning)
                    (fitted,) = learner.run(task, {seed: folder})
                logits = parts.predict(part, fitted)
                forget_large(task.data)
            except WriteError:
                raise
            except OutOfTime:
                return tried if number == 0 else Tried(recipe.name, failure=LATE)
            except CanetError as error:
                return Tried(recipe.name, failure=str(error))
            if not logits.isfinite().all():
                return Tried(recipe.name, failure="its predictions are not finite")
            result = fitted.result
            assert result is not None
            if not is_stored:
                self._trained.append((recipe, time.time() - begin))
            if part == VALID:
                chosen, tried = fitted.chosen_settings(), tried._replace(model=fitted.to(CPU))
            tried = tried._replace(
                logits={**tried.logits, part: logits},
                seconds=tried.seconds + result.seconds,
                epochs=tried.epochs + result.epochs,
            )
            if report:
                report(done, result.scores[VALID])
        return tried

    def _learner(
        self, recipe: Recipe, number: int, part: str, chosen: Mapping[str, Any]
    ) -> Learner:
        """Return the learner of one training. The first of all has no deadline."""
        name = recipe.name if part == VALID else f"{recipe.name} {part}"
        options = replace(self.options, name=name)
        if number == 0 and part == VALID:
            options = replace(options, deadline=math.inf)
        return recipe.learner(self.settings, options, **chosen)

    def _continue(
        self, task: ShiftTask, initial: Fitted, seed: int, on_progress: Progress | None
    ) -> Fitted:
        """Train each member again, networks from their parameters, and keep the weights."""
        assert isinstance(initial, Average)
        members, trained = list[Fitted](), list[Candidate]()
        chosen = [candidate for candidate in initial.candidates if candidate.weight]
        for member, before in zip(initial.members, chosen, strict=True):
            learner = member.learner(self.settings, self.options)
            (fitted,) = learner.run(task, {seed: None}, initial=member)
            assert fitted.result is not None
            members.append(fitted.to(CPU))
            validation, seconds = fitted.result.scores[VALID], fitted.result.seconds
            trained.append(
                Candidate(before.name, validation, weight=before.weight, seconds=seconds)
            )
            if on_progress:
                on_progress(len(members), len(chosen), validation)
        average = Average(members, initial.weights).to(self.device)
        average.candidates = trained
        epochs = sum(member.training.epochs for member in members)
        average.training = Training(epochs, selection="held-out likelihood")
        return average


def average_of(parts: Parts, tried: Sequence[Tried]) -> Average:
    """Return the average of models, with the table of all models as its `candidates`."""
    done = [(one, one.model) for one in tried if one.model is not None]
    if not done:
        raise CanetError("no model could be trained: see the warnings above for the reasons")
    shares = weights_of([parts.likelihood(one.logits) for one, _ in done])
    weights = {one.name: weight for (one, _), weight in zip(done, shares, strict=True)}
    members = [(one, model) for one, model in done if weights[one.name]]
    average = Average([model for _, model in members], list(filter(None, shares)))
    logits = {part: average.mean([one.logits[part] for one, _ in members]) for part in parts.tasks}
    average.candidates = [
        Candidate(one.name, note=one.failure)
        if one.failure
        else parts.candidate(one.name, one.logits, weight=weights[one.name], seconds=one.seconds)
        for one in tried
    ]
    average.candidates.append(parts.candidate(AVERAGE, logits, note="this model"))
    largest = parts.largest_class()
    average.candidates.append(parts.candidate(LARGEST_CLASS, largest, note="for comparison"))
    return average


def _folder(work: Path, recipe: Recipe, part: int, seed: int) -> Path:
    """Return the run folder of one training; another device has another order of models."""
    return work / recipe.name / str(part) / f"seed-{seed}"


def _is_finished(folder: Path) -> bool:
    """Whether a training is finished. If one of its files has changed, remove it."""
    run, problems = RunFolder(folder), list[str]()
    try:
        if run.finished:
            problems = run.problems()
        elif (folder / CONFIG).exists():
            run.read_config()
    except ChecksumError as error:
        problems = [str(error)]
    if problems:
        warn_user(f"a stored training cannot be used and starts again: {problems[0]}")
        shutil.rmtree(folder)
    return run.finished


def _is_stored(recipe: Recipe, parts: Parts, seed: int, work: Path | None) -> bool:
    """Whether all trainings of a model are finished; other machines may not have their files."""
    folders = [work and _folder(work, recipe, parts.numbers[part], seed) for part in parts.tasks]
    return all(folder and _is_finished(folder) for folder in folders)


def _processes(count: int) -> Processes:
    """Return processes that import packages now, while the first model is trained."""
    processes = Processes(count)
    for _ in range(count):
        processes.submit(import_boosting)
    return processes


def _try(shared: tuple[Auto, Parts, int], job: tuple[int, Recipe], work: Path | None) -> Tried:
    """Try a model in a worker."""
    auto, parts, seed = shared
    return auto._try(parts, *job, seed, work)

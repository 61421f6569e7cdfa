"""A search as an Optuna study: what is searched, where trials are kept, and how one is done."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from canet.errors import CanetError
from canet.methods import get_method
from canet.search.objective import Objective
from canet.settings import describe_settings, override
from canet.training import RunConfig

try:
    import optuna
except ModuleNotFoundError:
    raise CanetError("canet search needs Optuna: pip install 'canet[search]'") from None
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

SamplerName = Literal["tpe", "random", "grid"]
EPOCHS_BETWEEN_REPORTS = 20  # as often as a run on a GPU tells its score
MOST_REPEATS = 10  # draws of settings that were tried before, until one that was not is looked up
LOCK_SECONDS = 10  # after which the lock of a process that died is taken; it is held for moments
ERROR = "error"  # the attribute of a trial whose settings cannot be trained


@dataclass(frozen=True)
class Plan:
    """What is searched, completely: plans that are equal share their trials.

    Args:
        base: Task, method, backbone and the settings that the search starts from.
        sampler: `tpe`, `random` or `grid`.
        seeds: Number of runs whose mean validation score is maximised.
    """

    base: RunConfig
    sampler: SamplerName
    seeds: int

    @cached_property
    def ranges(self) -> dict[str, list[Any]]:
        """The values that each setting is searched over, as its method declares them."""
        settings_type = get_method(self.base.method).settings_type
        defaults = settings_type()
        return {
            name: [getattr(override(defaults, {name: value}), name) for value in about["search"]]
            for name, about in describe_settings(settings_type).items()
            if about["search"]
        }

    @cached_property
    def start(self) -> dict[str, Any]:
        """The searched settings as they are at the start; a published one may be out of range."""
        return {name: self.base.settings[name] for name in self.ranges}

    @cached_property
    def choices(self) -> dict[str, list[Any]]:
        """The ranges, and where the search starts."""
        return {name: sorted({*values, self.start[name]}) for name, values in self.ranges.items()}

    @property
    def size(self) -> int:
        """How many settings there are to try."""
        outside = any(self.start[name] not in values for name, values in self._space.items())
        return math.prod(len(values) for values in self._space.values()) + outside

    def untried(self, tried: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The settings that are left to try."""
        names = list(self._space)
        gone = {tuple(settings[name] for name in names) for settings in tried}
        points = itertools.product(*self._space.values())
        return [dict(zip(names, point, strict=True)) for point in points if point not in gone]

    @property
    def _space(self) -> dict[str, list[Any]]:
        return self.ranges if self.sampler == "grid" else self.choices

    @property
    def content(self) -> dict[str, Any]:
        return {**asdict(self), "ranges": self.ranges}

    @property
    def name(self) -> str:
        """A name for the study, and for its folder."""
        digest = hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()
        base = self.base
        return f"{base.task}-{base.method}-{base.backbone}-{digest[:8]}"


def open_study(plan: Plan, storage: str) -> optuna.Study:
    """The study of a plan, with the trials that its storage holds, a journal file or a database."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    epochs = plan.base.settings["epochs"]
    pruner = (
        optuna.pruners.NopPruner()
        if plan.sampler == "grid"
        else optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=epochs // 3)
    )
    try:
        return optuna.create_study(
            storage=_open_storage(storage),
            sampler=_NumberedSampler(_sampler_of(plan)),
            pruner=pruner,
            study_name=plan.name,
            direction="maximize",
            load_if_exists=True,
        )
    except (ValueError, KeyError):
        raise CanetError(f"'{storage}' is not a journal of a search: name another file") from None


def done_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that ended: with a score, pruned, or with settings that cannot be trained."""
    return [trial for trial in study.get_trials(deepcopy=False) if _is_done(trial)]


def ranked_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Trials with a score, the best first, the first of equals before the others."""
    trials = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    return sorted(trials, key=lambda trial: (-_score(trial), trial.number))


def importances(study: optuna.Study) -> dict[str, float]:
    """Share of each hyper-parameter in the variance of the scores (fANOVA), the largest first."""
    if len({trial.value for trial in ranked_trials(study)}) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return optuna.importance.get_param_importances(study, evaluator=evaluator)


def enqueue_start(study: optuna.Study, plan: Plan) -> None:
    """Let the settings that the search starts from be tried first, if they have not been."""
    waiting = study.get_trials(deepcopy=False, states=[TrialState.WAITING])
    tried = any(trial.params == plan.start for trial in done_trials(study))
    if not tried and not waiting:
        study.enqueue_trial(plan.start)


def try_settings(study: optuna.Study, plan: Plan, objective: Objective) -> bool:
    """Do one trial with settings that were not tried before; False if none were found."""
    distributions: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(choices) for name, choices in plan.choices.items()
    }
    repeats = 0
    while True:
        trial = study.ask(distributions)
        tried = [other.params for other in done_trials(study)]
        if trial.params not in tried:
            _score_trial(study, plan, objective, trial)
            return True
        study.tell(trial, state=TrialState.FAIL)
        repeats += 1
        if repeats >= MOST_REPEATS:
            left = plan.untried(tried)
            if not left:
                return False
            study.enqueue_trial(left[_seed(len(left)) % len(left)])


def _score_trial(
    study: optuna.Study, plan: Plan, objective: Objective, trial: optuna.Trial
) -> None:
    try:
        study.tell(trial, objective(trial.params, _reporter(trial, plan)))
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    except CanetError as error:
        _fail(study, trial, str(error))
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        _fail(study, trial, "not enough memory on the device")


class _NumberedSampler(BaseSampler):
    """Draws each trial from its number and the trials before it, in whatever process.

    So a search that is stopped and goes on tries what it would have tried without the stop, and
    processes that share a study do not draw the same.
    """

    def __init__(self, sampler_of: Callable[[int], BaseSampler]) -> None:
        self._sampler_of = sampler_of
        self._sampler = sampler_of(0)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._sampler = self._sampler_of(trial.number)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)


def _sampler_of(plan: Plan) -> Callable[[int], BaseSampler]:
    """Number of a trial → what draws it."""
    if plan.sampler == "grid":
        grid = GridSampler(plan.ranges, seed=0)
        return lambda number: grid
    if plan.sampler == "random":
        return lambda number: RandomSampler(seed=_seed(number))
    return lambda number: TPESampler(seed=_seed(number), multivariate=True, constant_liar=True)


def _seed(number: int) -> int:
    """Neighbouring numbers → seeds far apart."""
    return int(np.random.SeedSequence(number).generate_state(1)[0])


def _open_storage(storage: str) -> optuna.storages.BaseStorage:
    if "://" not in storage:
        path = Path(storage).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = JournalFileOpenLock(str(path), LOCK_SECONDS)
        backend = JournalFileBackend(str(path), lock)
        _drop_torn_line(path, lock)
        return optuna.storages.JournalStorage(backend)
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return optuna.storages.RDBStorage(storage)
    except (SQLAlchemyError, ImportError, optuna.exceptions.StorageInternalError) as error:
        cause = str(error).splitlines()[0]
        raise CanetError(f"cannot open the storage '{storage}' ({cause}): check its URL") from None


def _drop_torn_line(path: Path, lock: JournalFileOpenLock) -> None:
    """Cut off what a process that died while writing left at the end of a journal."""
    lock.acquire()
    try:
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    finally:
        lock.release()


def _reporter(trial: optuna.Trial, plan: Plan) -> Callable[[int, int, float], None]:
    """Hands validation scores to the pruner; the settings of the start are never pruned."""

    def report(done: int, total: int, score: float) -> None:
        if done % EPOCHS_BETWEEN_REPORTS == 0 and done < total and math.isfinite(score):
            trial.report(score, done)
            if trial.should_prune() and trial.params != plan.start:
                raise optuna.TrialPruned

    return report


def _fail(study: optuna.Study, trial: optuna.Trial, error: str) -> None:
    trial.set_user_attr(ERROR, error)
    study.tell(trial, state=TrialState.FAIL)


def _is_done(trial: FrozenTrial) -> bool:
    failed = trial.state == TrialState.FAIL and ERROR in trial.user_attrs
    return failed or trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def _score(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value

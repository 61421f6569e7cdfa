"""A search as an Optuna study: what is searched, and how trials are done."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any

import optuna
import torch
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from canet.data.digest import DataDigest
from canet.errors import CanetError
from canet.methods import get_method
from canet.search.objective import Progress
from canet.search.samplers import PLACE, SamplerName, open_sampler, places, seed_of
from canet.settings import describe_settings, override
from canet.store import RunConfig
from canet.util.files import WriteError

EPOCHS_BETWEEN_REPORTS = 20  # as often as a run on a GPU tells its score
MOST_REPEATS = 10  # draws of settings that were tried before, until one that was not is looked up
ERROR = "error"  # the attribute of a trial whose settings cannot be trained
FIXED = "fixed_params"  # Optuna's attribute of a trial whose settings are not drawn
DATA = "data"  # the attribute of a study with the digest of what it is searched on

Score = Callable[[Mapping[str, Any], Progress], float]


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
    def points(self) -> list[dict[str, Any]]:
        """All settings that there are to try."""
        space = self.ranges if self.sampler == "grid" else self.choices
        points = [dict(zip(space, point, strict=True)) for point in product(*space.values())]
        return points if self.start in points else [*points, self.start]

    @property
    def content(self) -> dict[str, Any]:
        return {**asdict(self), "ranges": self.ranges}

    @property
    def name(self) -> str:
        """A name for the study, and for its folder."""
        digest = hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()
        base = self.base
        return f"{base.task}-{base.method}-{base.backbone}-{digest[:8]}"


def open_study(plan: Plan, storage: BaseStorage) -> optuna.Study:
    """The study of a plan, with the trials that a storage has of it."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    epochs = plan.base.settings["epochs"]
    median = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=epochs // 3)
    return optuna.create_study(
        storage=storage,
        sampler=open_sampler(plan.sampler, plan.ranges),
        pruner=optuna.pruners.NopPruner() if plan.sampler == "grid" else median,
        study_name=plan.name,
        direction="maximize",
        load_if_exists=True,
    )


def check_data(study: optuna.Study, data: DataDigest) -> None:
    """Keep what data the trials are made on, and refuse to add some on other data."""
    known = study.user_attrs.get(DATA)
    if known is None:
        study.set_user_attr(DATA, data.to_json())
        return
    try:
        same = DataDigest.from_json(known).differs_in(data) in (None, "last bits")
    except (KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise CanetError(
            f"the trials of '{study.study_name}' were made on other data: give the data they were "
            "made on, or choose another folder for --out"
        )


def check_trials(study: optuna.Study, plan: Plan) -> None:
    """Refuse trials that no search by this plan has made: a storage may have been edited."""

    def sound(trial: FrozenTrial) -> bool:
        scores = [*trial.intermediate_values.values(), *(trial.values or [])]
        ended = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        return (
            all(map(math.isfinite, scores))
            and isinstance(trial.user_attrs.get(PLACE, 0), int)
            and (trial.state != TrialState.COMPLETE or len(trial.values or []) == 1)
            and (not ended or trial.params.keys() == plan.choices.keys())
            and all(value in plan.choices.get(name, []) for name, value in trial.params.items())
        )

    for trial in study.get_trials(deepcopy=False):
        if not sound(trial):
            raise CanetError(
                f"trial {trial.number} of '{study.study_name}' is not one of this search: its "
                "journal or database was edited; put it back, or choose another --out or --storage"
            )


def done_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that ended: with a score, pruned, or with settings that cannot be trained."""
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state in ended or ERROR in trial.user_attrs]


def ranked_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Trials with a score, the best first, the first of equals before the others."""
    trials = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    return sorted(trials, key=lambda trial: trial.values, reverse=True)


def importances(study: optuna.Study) -> dict[str, float]:
    """Share of each hyper-parameter in the variance of the scores (fANOVA), the largest first."""
    if len({trial.value for trial in ranked_trials(study)}) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return optuna.importance.get_param_importances(study, evaluator=evaluator)


def enqueue_start(study: optuna.Study, plan: Plan) -> None:
    """Let the settings that the search starts from be tried first, if they have not been.

    Optuna's `skip_if_exists` would skip them after a trial that died, too.
    """
    waiting = study.get_trials(deepcopy=False, states=[TrialState.WAITING])
    tried = any(trial.params == plan.start for trial in done_trials(study))
    if not tried and not waiting:
        study.enqueue_trial(plan.start)


def begin_anew(study: optuna.Study) -> None:
    """Let trials whose process has ended be done next, each in its place.

    Only for who knows that all trials under way by name are such: Optuna cannot tell. That a trial
    waits is written before that the other one failed, so that a stop in between loses neither; one
    that then waits twice is done once.
    """
    trials = study.get_trials(deepcopy=False)
    place = places(trials)
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            if ERROR not in trial.user_attrs:
                fixed = {FIXED: trial.system_attrs[FIXED]} if FIXED in trial.system_attrs else {}
                again = {PLACE: place[trial.number]}
                study.add_trial(
                    create_trial(state=TrialState.WAITING, system_attrs=fixed, user_attrs=again)
                )
            study.tell(trial.number, state=TrialState.FAIL)


def optimize(
    study: optuna.Study,
    plan: Plan,
    wanted: int,
    score: Score,
    dead: frozenset[int] = frozenset(),
    look: Callable[[], None] | None = None,
) -> None:
    """Do trials until there are so many in all, with those that other workers are at.

    Optuna does not know that settings were tried before, and its own limit of trials lets every
    worker begin one more; both are seen to here, by the order of their numbers. Its own loop would
    take a trial that was interrupted, or could not be written down, for one that failed.

    Args:
        study: Where trials are drawn from and kept.
        plan: What is searched.
        wanted: Number of trials.
        score: Settings, and whom to tell the progress → score.
        dead: Numbers of trials that are running by name, but whose process may have ended.
        look: Called after each trial.
    """

    def taken() -> list[FrozenTrial]:
        running = study.get_trials(deepcopy=False, states=[TrialState.RUNNING])
        return done_trials(study) + [trial for trial in running if trial.number not in dead]

    def attempt(trial: optuna.Trial) -> tuple[float | None, TrialState | None]:
        settings = {name: trial.suggest_categorical(name, c) for name, c in plan.choices.items()}
        earlier = [other.params for other in taken() if other.number < trial.number]
        if len(earlier) >= wanted or settings in earlier:
            return None, TrialState.FAIL

        def report(done: int, total: int, valid: float) -> None:
            if done % EPOCHS_BETWEEN_REPORTS == 0 and done < total and math.isfinite(valid):
                trial.report(valid, done)
                if trial.should_prune() and settings != plan.start:
                    raise optuna.TrialPruned

        try:
            return score(settings, report), None
        except optuna.TrialPruned:
            return None, TrialState.PRUNED
        except WriteError:  # not the fault of the settings
            raise
        except CanetError as error:
            reason = str(error)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            reason = "not enough memory on the device"
        trial.set_user_attr(ERROR, reason)
        return None, TrialState.FAIL

    while len(taken()) < wanted and _enqueue_after_repeats(study, plan):
        trial = study.ask()
        study.tell(trial, *attempt(trial))
        if look:
            look()


def _enqueue_after_repeats(study: optuna.Study, plan: Plan) -> bool:
    """Look settings up that were not tried if too many draws in a row were; False if none are left.

    It depends on the trials so far alone, so that a stop changes nothing.
    """
    trials, done = study.get_trials(deepcopy=False), done_trials(study)
    place = places(trials)
    last = max((place[trial.number] for trial in done), default=-1)
    ended = {place[trial.number] for trial in trials if trial.state.is_finished()}
    waiting = any(trial.state == TrialState.WAITING for trial in trials)
    if waiting or sum(number > last for number in ended) < MOST_REPEATS:
        return True
    tried = [trial.params for trial in done]
    if left := [point for point in plan.points if point not in tried]:
        study.enqueue_trial(left[seed_of(len(left)) % len(left)])
    return bool(left)

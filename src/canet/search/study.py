"""A search as an Optuna study: its plan, and the choice of the next trial."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from canet.data.digest import DataDigest
from canet.errors import CanetError
from canet.methods import get_method
from canet.settings import describe_settings, override
from canet.store import RunConfig

MAX_REPEATS = 10
"""After this many draws of known settings, the next trial is chosen from the untried ones."""
ERROR = "error"
"""Attribute of a trial: why its settings cannot be trained."""
DATA = "data"
"""Attribute of a study: the digest of its data."""

SamplerName = Literal["tpe", "random", "grid"]


@dataclass(frozen=True)
class Plan:
    """The complete plan of a search; equal plans share their trials.

    Args:
        base: Task, method, backbone and initial settings.
        sampler: `tpe`, `random` or `grid`.
        seeds: Number of runs whose mean validation score is maximised.
    """

    base: RunConfig
    sampler: SamplerName
    seeds: int

    @cached_property
    def ranges(self) -> dict[str, list[Any]]:
        """Values of each searched setting, as declared by the method."""
        settings_type = get_method(self.base.method).settings_type
        defaults = settings_type()
        return {
            name: [getattr(override(defaults, {name: value}), name) for value in about["search"]]
            for name, about in describe_settings(settings_type).items()
            if about["search"]
        }

    @cached_property
    def start(self) -> dict[str, Any]:
        """Initial values of the searched settings; a published value may be outside the ranges."""
        return {name: self.base.settings[name] for name in self.ranges}

    @cached_property
    def choices(self) -> dict[str, list[Any]]:
        """Values of each searched setting, including the initial value."""
        return {name: sorted({*values, self.start[name]}) for name, values in self.ranges.items()}

    @property
    def points(self) -> list[dict[str, Any]]:
        """All settings that can be tried."""
        space = self.ranges if self.sampler == "grid" else self.choices
        points = [dict(zip(space, point, strict=True)) for point in product(*space.values())]
        return points if self.start in points else [*points, self.start]

    @property
    def content(self) -> dict[str, Any]:
        return {**asdict(self), "ranges": self.ranges}

    @property
    def name(self) -> str:
        """Name of the study and of its folder."""
        digest = hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()
        base = self.base
        return f"{base.task}-{base.method}-{base.backbone}-{digest[:8]}"


def open_study(plan: Plan, storage: BaseStorage) -> optuna.Study:
    """Open the study of a plan, with its trials in the storage."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    epochs = plan.base.settings["epochs"]
    median = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=epochs // 3)
    study = optuna.create_study(
        storage=storage,
        pruner=optuna.pruners.NopPruner() if plan.sampler == "grid" else median,
        study_name=plan.name,
        direction="maximize",
        load_if_exists=True,
    )
    # A resumed search must not draw the same settings again.
    seed = len(study.get_trials(deepcopy=False))
    study.sampler = RandomSampler(seed)  # not used by a grid
    if plan.sampler == "tpe":
        study.sampler = TPESampler(seed=seed, multivariate=True, constant_liar=True)
    return study


def check_data(study: optuna.Study, data: DataDigest) -> None:
    """Record the digest of the data, or reject a study whose trials used other data."""
    known = study.user_attrs.get(DATA)
    if known is None:
        study.set_user_attr(DATA, data.to_json())
    elif DataDigest.from_json(known).differs_in(data) not in (None, "last bits"):
        raise CanetError(
            f"the trials of '{study.study_name}' used other data: use the same data, or choose "
            "another folder for --out"
        )


def next_trial(
    study: optuna.Study, plan: Plan, running: Iterable[optuna.Trial]
) -> optuna.Trial | None:
    """Return a trial with untried settings, first the initial ones; None if none are left.

    Args:
        study: The study.
        plan: The plan of the search.
        running: The running trials of this command. Other trials with the state "running" may
            belong to a killed command, so they are ignored.
    """
    space: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(values) for name, values in plan.choices.items()
    }
    tried = {_key(plan, trial.params) for trial in [*done_trials(study), *running]}
    if _key(plan, plan.start) not in tried:
        study.enqueue_trial(plan.start)
        return study.ask(space)
    for _ in range(0 if plan.sampler == "grid" else MAX_REPEATS):
        trial = study.ask(space)
        if _key(plan, trial.params) not in tried:
            return trial
        study.tell(trial, state=TrialState.FAIL)
    untried = [point for point in plan.points if _key(plan, point) not in tried]
    if not untried:
        return None
    study.enqueue_trial(random.Random(len(untried)).choice(untried))
    return study.ask(space)


def done_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that ended: with a score, pruned, or failed because of their settings."""
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state in ended or ERROR in trial.user_attrs]


def ranked_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials with a score, the best first; of equal trials, the earliest first."""
    trials = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    return sorted(trials, key=lambda trial: trial.values, reverse=True)


def importances(study: optuna.Study) -> dict[str, float]:
    """Return the share of each setting in the variance of the scores (fANOVA), largest first."""
    if len({trial.value for trial in ranked_trials(study)}) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return optuna.importance.get_param_importances(study, evaluator=evaluator)


def _key(plan: Plan, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(settings.get(name) for name in plan.choices)

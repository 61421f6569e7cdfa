"""A search as an Optuna study: its plan, its journal, its sampler and its trials."""

import hashlib
import json
import math
import os
import sys
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from canet.data.digest import DataDigest
from canet.errors import CanetError
from canet.methods import get_method
from canet.settings import describe_settings, override
from canet.store import RunConfig
from canet.util.files import read_regular, write_errors

ERROR, DEVICE = "error", "device"
"""Attributes of a trial: why its settings cannot be trained, and the name of the device."""
DATA = "data"  # attribute of a study: the digest of its data
ENTRY = b'{"op_code":'  # beginning of every line of a journal

SamplerName = Literal["tpe", "random", "grid"]


@dataclass(frozen=True)
class Plan:
    """The complete plan of a search; equal plans share their trials."""

    base: RunConfig  # task, method, backbone and initial settings
    sampler: SamplerName  # `tpe`, `random` or `grid`
    seeds: int  # number of runs whose mean validation score is maximised

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
    def max_trials(self) -> int:
        """Number of trials of a whole grid, after the initial settings; else without limit."""
        grid = math.prod(map(len, self.ranges.values()))
        return 1 + grid if self.sampler == "grid" else sys.maxsize

    @property
    def content(self) -> dict[str, Any]:
        return {**asdict(self), "ranges": self.ranges}

    @property
    def name(self) -> str:
        """Name of the study and of its folder."""
        digest = hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()
        base = self.base
        return f"{base.task}-{base.method}-{base.backbone}-{digest[:8]}"


def open_journal(path: Path) -> JournalStorage:
    """Open the journal at a path, or begin a new one."""
    path = path.absolute()  # a lock of a killed process expires only if its link has a valid target
    try:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                _drop_incomplete_line(path)
            return JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CanetError(
            f"'{path}' is not the journal of a search, or one of its lines was changed ({error}): "
            "choose another --out or --storage"
        ) from error


def _drop_incomplete_line(path: Path) -> None:
    """Remove an incomplete last line, left by a full disk; Optuna would append to this line."""
    content = read_regular(path)
    if not content.startswith(ENTRY[: len(content)]):
        raise ValueError("its first line was not written by Optuna")
    os.truncate(path, content.rfind(b"\n") + 1)


def open_study(
    plan: Plan, storage: BaseStorage | None = None, sampler: BaseSampler | None = None
) -> optuna.Study:
    """Open the study of a plan, with its trials in the storage; without one, in memory."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    epochs = plan.base.settings["epochs"]
    median = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=epochs // 3)
    return optuna.create_study(
        storage=storage,
        sampler=sampler,
        pruner=optuna.pruners.NopPruner() if plan.sampler == "grid" else median,
        study_name=plan.name,
        direction="maximize",
        load_if_exists=True,
    )


def ask(plan: Plan, storage: BaseStorage, seed: int) -> optuna.Trial:
    """Choose the settings of the next trial; a grid has the same order for every seed."""
    samplers: dict[str, BaseSampler] = {
        "grid": GridSampler(plan.ranges, seed=0),
        "random": RandomSampler(seed),
        "tpe": TPESampler(seed=seed, multivariate=True, constant_liar=True),
    }
    choices: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(values) for name, values in plan.choices.items()
    }
    return open_study(plan, storage, samplers[plan.sampler]).ask(choices)


def record(study: optuna.Study, trial: optuna.Trial, data: DataDigest, found: FrozenTrial) -> None:
    """Store the outcome of a trial, and the digest of its data."""
    known = study.user_attrs.get(DATA)
    check_data(known, data)
    if known is None:
        study.set_user_attr(DATA, asdict(data))
    for step, score in found.intermediate_values.items():
        trial.report(score, step)
    for name, value in found.user_attrs.items():
        trial.set_user_attr(name, value)
    is_complete = found.state == TrialState.COMPLETE
    study.tell(trial, found.value if is_complete else None, found.state)


def check_data(known: dict[str, Any] | None, data: DataDigest) -> None:
    """Reject data that differ from the data of earlier trials."""
    if known and DataDigest(**known).differs_in(data) not in (None, "last bits"):
        raise CanetError(
            "the earlier trials of this search used other data: use the same data, or choose "
            "another folder for --out"
        )


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

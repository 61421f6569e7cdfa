"""How settings are drawn: Optuna's samplers, beginning anew with the place of each trial.

Optuna's samplers draw from a generator whose state ends with their process, and count trials that a
stop cut short. Here a trial has a place: its number in a search that was never stopped. A trial
that begins another one anew has the place of that one, and so draws the same settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import prod
from typing import Any, Literal

import numpy as np
import optuna
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

SamplerName = Literal["tpe", "random", "grid"]
PLACE = "place"
"""The attribute of a trial that begins another one anew."""


def places(trials: Sequence[FrozenTrial]) -> dict[int, int]:
    """Number → place of trials, which are all that a study has, in the order of their numbers."""
    found: dict[int, int] = {}
    firsts = 0
    for trial in trials:
        found[trial.number] = trial.user_attrs.get(PLACE, firsts)
        firsts += PLACE not in trial.user_attrs
    return found


def open_sampler(name: SamplerName, ranges: Mapping[str, Sequence[Any]]) -> BaseSampler:
    """The sampler of a name, for the values that each setting is searched over."""
    if name == "grid":
        return _Grid(ranges, seed=0)
    return _Random() if name == "random" else _Tpe()


def seed_of(number: int) -> int:
    """Neighbouring numbers → seeds far apart."""
    return int(np.random.SeedSequence(number).generate_state(1)[0])


class _Random(RandomSampler):
    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        vars(self).update(vars(RandomSampler(seed_of(_place(study, trial)))))


class _Tpe(TPESampler):
    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        seed = seed_of(_place(study, trial))
        vars(self).update(vars(TPESampler(seed=seed, multivariate=True, constant_liar=True)))


class _Grid(GridSampler):
    after_trial = BaseSampler.after_trial  # its own takes a trial that died for done, and ends all

    def __init__(self, ranges: Mapping[str, Sequence[Any]], seed: int) -> None:
        super().__init__(ranges, seed)
        self._size = prod(map(len, ranges.values()))

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """The first place is the start's, so the combination that it leaves out comes last."""
        placed = copy(trial)
        placed.number = _place(study, trial) % self._size
        super().before_trial(study, placed)


def _place(study: optuna.Study, trial: FrozenTrial) -> int:
    return places(study.get_trials(deepcopy=False))[trial.number]

"""Runs → comparisons: who is compared with whom, what a spread is over, and who is best."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from statistics import mean
from typing import Any

from canet.data import CENTRED, DATASETS, WITHOUT_SPURIOUS
from canet.methods import BACKBONES, Auto
from canet.report.context import NO_CONTEXT, ReportContext
from canet.report.labels import SEARCHED_LABEL, method_label
from canet.report.score import Score
from canet.store import RunConfig
from canet.store.summary import LEFT_OUT, OOD, OOD_MEAN, FinishedRun

CONTROLS = {WITHOUT_SPURIOUS: "blind", CENTRED: "centred"}
"""Features of control runs, which do not compete → how their methods are called."""


@dataclass(frozen=True)
class Contender:
    """A method with one backbone and one set of settings, over draws of the data and runs."""

    config: RunConfig  # what its runs share; both seeds are 0
    draws: dict[int, dict[int, FinishedRun]] = field(default_factory=dict)  # by data and run seed
    searched: bool = False  # with settings of a search, next to published ones: cannot be best

    @property
    def label(self) -> str:
        """The method as tables name it."""
        if self.searched:
            return SEARCHED_LABEL
        name = method_label(self.config.method)
        return f"{name}, {self.control}" if self.control else name

    @cached_property
    def runs(self) -> list[FinishedRun]:
        """Every run, by data seed and run seed."""
        return [runs[seed] for _, runs in sorted(self.draws.items()) for seed in sorted(runs)]

    @cached_property
    def _seeds(self) -> set[int]:
        """The run seeds that every draw has, so that draws are compared on equal terms."""
        return set.intersection(*(set(runs) for runs in self.draws.values()))

    def score(self, split: str) -> Score:
        """Over draws of the data where there are several, else over runs."""
        if len(self.draws) == 1:
            return self.score_over_runs(split)
        draws = self.draws.values()
        return Score([mean(runs[s].score(split) for s in self._seeds or runs) for runs in draws])

    def score_over_runs(self, split: str) -> Score:
        """Over the runs on one draw of the data, the draw with most runs."""
        runs = max(self.draws.values(), key=len)
        return Score([run.score(split) for run in runs.values()])

    @property
    def basis(self) -> str:
        """What the spread of `score` is taken over, in words."""
        if len(self.draws) == 1:
            return "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        runs = f" × {len(self._seeds)} runs" if len(self._seeds) > 1 else ""
        return f"{len(self.draws)} draws{runs}"

    @property
    def control(self) -> str:
        """`blind` or `centred` for a control, which does not compete; empty for all others."""
        return CONTROLS.get(self.config.features, "")


class Lead(StrEnum):
    """What one score being above another is worth, in words."""

    TIED = "tied"
    CLEAR = "more than the spread"
    WITHIN = "within the spread"
    SINGLE = "single runs"

    @classmethod
    def of(cls, first: Score, second: Score) -> Lead:
        """Scores that read alike are tied; a clear lead exceeds the standard deviation of both."""
        if first.shown == second.shown:
            return cls.TIED
        if not (first.has_spread and second.has_spread):
            return cls.SINGLE
        return cls.CLEAR if first.mean - second.mean > max(first.std, second.std) else cls.WITHIN


@dataclass(frozen=True)
class Verdict:
    """Who is best under shift among the contenders of one backbone, the first of `ranked`."""

    backbone: str
    ranked: list[Contender]

    @cached_property
    def best(self) -> list[Contender]:
        """Several where scores read alike: a tie is nobody's."""
        top = self.ranked[0].score(OOD_MEAN).shown
        return [c for c in self.ranked if c.score(OOD_MEAN).shown == top]

    @property
    def best_labels(self) -> list[str]:
        """Each once, in the order of the alphabet."""
        return sorted({contender.label for contender in self.best}, key=str.casefold)

    @property
    def runner_up(self) -> Contender | None:
        return self.ranked[1] if len(self.ranked) > 1 else None

    @cached_property
    def points(self) -> float:
        """Between the first and the second; NaN where nobody is second."""
        first, *others = (contender.score(OOD_MEAN).mean for contender in self.ranked)
        return first - others[0] if others else math.nan

    @cached_property
    def lead(self) -> Lead | None:
        """What these points are worth; None where nobody is second."""
        scores = [contender.score(OOD_MEAN) for contender in self.ranked[:2]]
        return Lead.of(*scores) if len(scores) == 2 else None


@dataclass(frozen=True)
class Comparison:
    """Everything that was run on one task under one protocol with one kind of features.

    Contenders have the settings nearest to the preset of their method and backbone, or searched
    ones. Variants are the same methods with other settings.
    """

    config: RunConfig  # what all of it shares: task, protocol, features, inductive
    contenders: list[Contender]
    variants: list[Contender]
    splits: list[str]  # the scored sets: under shift, in distribution, left out

    @property
    def is_structural(self) -> bool:
        return self.config.features == "structural"

    @property
    def backbones(self) -> list[str]:
        found = dict.fromkeys(contender.config.backbone for contender in self.contenders)
        return [name for name in found if name != Auto.name] or [*found]

    def of(self, backbone: str) -> list[Contender]:
        """Contenders with this backbone, or that choose one, the best under shift first."""
        chosen = [c for c in self.contenders if c.config.backbone in (backbone, Auto.name)]
        return sorted(chosen, key=_by_score)

    def verdict(self, backbone: str) -> Verdict | None:
        """None where no contender has a score under shift."""
        rivals = [c for c in self.of(backbone) if not (c.control or c.searched)]
        ranked = [c for c in rivals if c.score(OOD_MEAN).is_finite]
        return Verdict(backbone, ranked) if ranked else None


def compare(runs: Iterable[FinishedRun], context: ReportContext = NO_CONTEXT) -> list[Comparison]:
    """Group runs by task, protocol and features; then by method, backbone and settings."""
    groups: dict[str, dict[str, Contender]] = {}
    for run in runs:
        alike = replace(run.config, data_seed=0, seed=0, ood_curves=False)
        group = groups.setdefault(_key(_shared(alike)), {})
        contender = group.setdefault(_key(alike), Contender(alike))
        draw = contender.draws.setdefault(run.config.data_seed, {})
        if run.config.seed not in draw or run.config.ood_curves:
            draw[run.config.seed] = run
    comparisons = [_comparison(list(group.values()), context) for group in groups.values()]
    return sorted(comparisons, key=_in_order)


def _key(config: RunConfig) -> str:
    return json.dumps(asdict(config), sort_keys=True)


def _shared(config: RunConfig) -> RunConfig:
    """What a comparison has in common; controls are compared with those who see the whole task."""
    features = "original" if config.features in CONTROLS else config.features
    return replace(config, features=features, method="", backbone="", settings={})


def _comparison(found: list[Contender], context: ReportContext) -> Comparison:
    rivals: dict[tuple[str, str, str], list[Contender]] = {}
    for contender in found:
        config = contender.config
        rivals.setdefault((config.backbone, config.method, config.features), []).append(contender)
    chosen, variants = [], []
    for group in rivals.values():
        first, *others = sorted(group, key=lambda c: _distance(c, context.preset(c.config)))
        chosen.append(first)
        for other in others:
            if context.searched(other.config):
                chosen.append(replace(other, searched=True))
            else:
                variants.append(other)
    chosen.sort(key=lambda c: _order_of(c.config.backbone, BACKBONES))
    return Comparison(_shared(found[0].config), chosen, variants, _splits(chosen, context))


def _distance(contender: Contender, preset: Mapping[str, Any] | None) -> tuple[int, bool, int]:
    """Settings that differ from the preset; fewer epochs count least, then more runs are better."""
    settings = contender.config.settings
    names = {name for name, _ in differences(settings, settings if preset is None else preset)}
    return len(names - {"epochs"}), "epochs" in names, -len(contender.runs)


def _splits(contenders: Sequence[Contender], context: ReportContext) -> list[str]:
    """Every set that some run has a score on; extra ones behind the set they belong to."""
    names = {name: None for c in contenders for run in c.runs for name in run.scores}
    ood = [name for name in names if name.startswith(OOD)]
    for extra in context.extra_sets:
        if extra.name in names and extra.follows in ood:
            ood.insert(ood.index(extra.follows) + 1, extra.name)
    return [OOD_MEAN, *ood, "test_id", *(name for name in names if name.startswith(LEFT_OUT))]


def differences(settings: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and values of the settings that `other` has not, or has otherwise."""
    return [(k, v) for k, v in settings.items() if k not in other or other[k] != v]


def _by_score(contender: Contender) -> tuple[bool, bool, float]:
    score = contender.score(OOD_MEAN).mean
    return bool(contender.control), math.isnan(score), -score


def _in_order(comparison: Comparison) -> tuple[int, str, str, str, bool]:
    config = comparison.config
    names = (config.task, config.protocol.replace("paper", ""), config.features)
    return _order_of(config.task, tuple(DATASETS)), *names, config.inductive


def _order_of(name: str, names: Iterable[str]) -> int:
    return [*names, name].index(name)

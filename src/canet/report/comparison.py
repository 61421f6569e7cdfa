"""Read finished runs, group them into comparisons, average them, and rank the methods."""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, Self

from canet.data import CENTRED_PER_GRAPH, DATASETS, WITHOUT_SPURIOUS
from canet.errors import CanetError, warn_user
from canet.methods import BACKBONES
from canet.models import all_methods
from canet.report.labels import SEARCHED_LABEL, backbone_label, method_label
from canet.report.score import Published, Score, to_percent
from canet.store import RunConfig, find_runs
from canet.store.config import group_by_configuration
from canet.store.summary import LEFT_OUT, OOD, OOD_MEAN, FinishedRun, read_run
from canet.util.colour import Colour


class Control(NamedTuple):
    """A run on other features, which is not ranked."""

    label: str
    colour: Colour


CONTROLS = {
    WITHOUT_SPURIOUS: Control("without the spurious columns", Colour("#5f6b70", "#7d8b92")),
    CENTRED_PER_GRAPH: Control("centred per graph", Colour("#a9b4b8", "#4d585d")),
}
"""Features of a control → its label and colour."""
OTHER = Colour("#586368", "#9eaab0")
"""Colour of methods that this version does not know."""


@dataclass(frozen=True)
class ReportContext:
    """Knowledge about runs that is not in their folders; empty by default."""

    published: Callable[[RunConfig, str], Published | None] = lambda config, split: None
    """The published score of such a run on a split."""
    default_settings: Callable[[RunConfig], Mapping[str, Any] | None] = lambda config: None
    """The default settings of such a run."""
    searched: Callable[[RunConfig], bool] = lambda config: False
    """Whether a run has the settings that a search found."""


NO_CONTEXT = ReportContext()


@dataclass(frozen=True)
class Contender:
    """A method with one backbone and one set of settings: all its runs."""

    config: RunConfig  # common to its runs; both seeds are 0
    draws: dict[int, dict[int, FinishedRun]] = field(default_factory=dict)  # by data seed and seed
    is_searched: bool = False  # has the settings of a search; not ranked

    @property
    def label(self) -> str:
        """The method as tables show it."""
        if self.is_searched:
            return SEARCHED_LABEL
        name = method_label(self.config.method)
        return f"{name}, {self.control}" if self.control else name

    @cached_property
    def runs(self) -> list[FinishedRun]:
        """All runs, sorted by data seed and seed."""
        return [runs[seed] for _, runs in sorted(self.draws.items()) for seed in sorted(runs)]

    @cached_property
    def _common_seeds(self) -> set[int]:
        """The seeds that every draw of the data has."""
        return set.intersection(*(set(runs) for runs in self.draws.values()))

    def score(self, split: str) -> Score:
        """Score over draws of the data; over runs if there is only one draw."""
        if len(self.draws) == 1:
            return self.score_over_runs(split)
        draws = self.draws.values()
        means = [mean(runs[s].score(split) for s in self._common_seeds or runs) for runs in draws]
        return Score(means)

    def score_over_runs(self, split: str) -> Score:
        """Score over the runs on one draw of the data, the draw with most runs."""
        runs = max(self.draws.values(), key=len)
        return Score([run.score(split) for run in runs.values()])

    @property
    def spread_over(self) -> str:
        """The runs that the spread of `score` is over, such as `5 draws`."""
        if len(self.draws) == 1:
            return "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        runs = f" × {len(self._common_seeds)} runs" if len(self._common_seeds) > 1 else ""
        return f"{len(self.draws)} draws{runs}"

    @property
    def control(self) -> str:
        """Label of the control; empty if this is not a control."""
        return CONTROLS[self.config.features].label if self.config.features in CONTROLS else ""

    @cached_property
    def main(self) -> Score:
        """The score by which it is ranked: under shift, or on a test set that is not shifted."""
        is_shifted = any(name.startswith(OOD) for run in self.runs for name in run.scores)
        return self.score(OOD_MEAN if is_shifted else "test_id")

    @property
    def is_ranked(self) -> bool:
        """Whether it is ranked: neither a control nor a method with searched settings."""
        return not (self.control or self.is_searched)

    @property
    def backbone(self) -> str:
        """Label of the backbone; empty for a model without one."""
        return backbone_label(self.config.backbone) if self.config.has_backbone else ""

    @property
    def colour(self) -> Colour:
        """Colour of its lines in charts."""
        if self.control:
            return CONTROLS[self.config.features].colour
        known = all_methods().get(self.config.method)
        return known.colour if known else OTHER


class Lead(StrEnum):
    """How large the lead of one score over another is."""

    TIED = "tied"
    CLEAR = "more than the spread"
    WITHIN = "within the spread"
    SINGLE = "single runs"

    @classmethod
    def of(cls, first: Score, second: Score) -> Self:
        """Scores with the same text are tied; a clear lead exceeds both standard deviations."""
        if first.rounded == second.rounded:
            return cls.TIED
        if not (first.has_spread and second.has_spread):
            return cls.SINGLE
        return cls.CLEAR if first.mean - second.mean > max(first.std, second.std) else cls.WITHIN


@dataclass(frozen=True)
class Ranking:
    """At least two contenders, sorted by their main score, the best first."""

    ranked: list[Contender]

    @cached_property
    def best(self) -> list[Contender]:
        """The best contenders; several if they are tied."""
        top = self.ranked[0].main.rounded
        return [c for c in self.ranked if c.main.rounded == top]

    @property
    def best_labels(self) -> list[str]:
        """Labels of the best contenders, sorted, each once."""
        return sorted({contender.label for contender in self.best}, key=str.casefold)

    @cached_property
    def points(self) -> float:
        """Percentage points between the first and the second."""
        first, second = (contender.main.mean for contender in self.ranked[:2])
        return to_percent(first - second)

    @cached_property
    def lead(self) -> Lead:
        """How large the lead of the first is."""
        first, second = (contender.main for contender in self.ranked[:2])
        return Lead.of(first, second)


@dataclass(frozen=True)
class Comparison:
    """All runs on one task under one protocol with one kind of features.

    For each method and backbone, the settings nearest to the defaults, and searched settings, are
    contenders. Other settings of the same method are variants.
    """

    config: RunConfig  # the common part: task, protocol, features, inductive
    contenders: list[Contender]
    variants: list[Contender]
    splits: list[str]  # scored sets: under shift, in distribution, left out

    @property
    def is_shifted(self) -> bool:
        return OOD_MEAN in self.splits

    @property
    def is_structural(self) -> bool:
        return self.config.features == "structural"

    @property
    def backbones(self) -> list[str]:
        found = dict.fromkeys(c.config.backbone for c in self.contenders if c.config.has_backbone)
        return [*found] or [""]

    def title_of(self, backbone: str) -> str:
        """Title of the contenders with this backbone, or without one."""
        title = backbone_label(backbone)
        if all(contender.config.has_backbone for contender in self.of(backbone)):
            return title
        return f"{title} and models without a backbone" if title else "Models without a backbone"

    def of(self, backbone: str) -> list[Contender]:
        """Contenders with this backbone, or without one, sorted by their main score."""
        chosen = (c for c in self.contenders if c.config.backbone in (backbone, c.config.method))
        return sorted(chosen, key=_by_score)

    def ranking(self, backbone: str) -> Ranking | None:
        """Rank the contenders with this backbone; None if fewer than two have a score."""
        ranked = [c for c in self.of(backbone) if c.is_ranked and c.main.is_finite]
        return Ranking(ranked) if len(ranked) > 1 else None


def find_results(root: Path) -> tuple[list[FinishedRun], list[str]]:
    """Return the finished runs at or below `root`, and an error message for each unreadable run.

    Runs that differ only in their seed follow each other, sorted by seed. If a run was copied, the
    first copy is used. Each unreadable run also raises a warning. Paths in the messages are
    relative to `root`.
    """
    runs, errors = [], []
    for folder in find_runs(root):
        try:
            runs.append(read_run(folder))
        except CanetError as error:
            errors.append(str(error))
    if not runs:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise CanetError(f"no run at '{root}' can be read: {errors[0]}{more}")
    left_out = [error.replace(f"{root}{os.sep}", "") for error in errors]
    for line in left_out:
        warn_user(f"left out a run: {line}")
    runs.sort(key=lambda run: json.dumps(asdict(run.config)))  # not by the digest in their names
    groups = group_by_configuration((run.config, run) for run in runs)
    return [run for group in groups for run in group.values()], left_out


def compare(runs: Iterable[FinishedRun], context: ReportContext = NO_CONTEXT) -> list[Comparison]:
    """Group runs by task, protocol and features; then by method, backbone and settings."""
    groups: dict[str, dict[str, Contender]] = {}
    for run in runs:
        config = replace(run.config, data_seed=0, seed=0, ood_curves=False)
        group = groups.setdefault(_key(_shared(config)), {})
        contender = group.setdefault(_key(config), Contender(config))
        draw = contender.draws.setdefault(run.config.data_seed, {})
        if run.config.seed not in draw or run.config.ood_curves:
            draw[run.config.seed] = run
    comparisons = [_comparison(list(group.values()), context) for group in groups.values()]
    return sorted(comparisons, key=_sort_key)


def _key(config: RunConfig) -> str:
    return json.dumps(asdict(config), sort_keys=True)


def _shared(config: RunConfig) -> RunConfig:
    """The part of a config that all runs of a comparison share; controls have original features."""
    features = "original" if config.features in CONTROLS else config.features
    return replace(config, features=features, method="", backbone="", settings={})


def _comparison(found: list[Contender], context: ReportContext) -> Comparison:
    groups: dict[tuple[str, str, str], list[Contender]] = {}
    for contender in found:
        config = contender.config
        groups.setdefault((config.backbone, config.method, config.features), []).append(contender)
    chosen, variants = [], []
    for group in groups.values():
        first, *others = sorted(group, key=lambda contender: _distance(contender, context))
        chosen.append(first)
        for other in others:
            if context.searched(other.config):
                chosen.append(replace(other, is_searched=True))
            else:
                variants.append(other)
    chosen.sort(key=lambda c: _order_of(c.config.backbone, BACKBONES))
    return Comparison(_shared(found[0].config), chosen, variants, _splits(chosen))


def _distance(contender: Contender, context: ReportContext) -> tuple[int, bool, int]:
    """Sort key: number of settings that differ from the defaults, then epochs, then most runs."""
    settings = contender.config.settings
    defaults = context.default_settings(contender.config)
    names = {name for name, _ in differences(settings, settings if defaults is None else defaults)}
    return len(names - {"epochs"}), "epochs" in names, -len(contender.runs)


def _splits(contenders: Sequence[Contender]) -> list[str]:
    """All scored sets: under shift, in distribution, left out."""
    names = dict.fromkeys(name for c in contenders for run in c.runs for name in run.scores)
    ood, left_out = ([n for n in names if n.startswith(prefix)] for prefix in (OOD, LEFT_OUT))
    inside = [name for name in names if name == "test_id"]
    return [*([OOD_MEAN] if ood else []), *ood, *inside, *left_out]


def differences(settings: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and values of the settings that `other` does not have, or has with another value."""
    return [(k, v) for k, v in settings.items() if k not in other or other[k] != v]


def _by_score(contender: Contender) -> tuple[bool, bool, float]:
    score = contender.main.mean
    return bool(contender.control), math.isnan(score), -score


def _sort_key(comparison: Comparison) -> tuple[int, str, str, str, bool]:
    config = comparison.config
    names = (config.task, config.protocol.replace("paper", ""), config.features)
    return _order_of(config.task, DATASETS), *names, config.inductive


def _order_of(name: str, names: Iterable[str]) -> int:
    return [*names, name].index(name)

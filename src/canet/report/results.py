"""Many run folders → results: the one reader of finished runs that tables and reports use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from canet.report.context import ExtraSet
from canet.report.score import Score
from canet.training import RunConfig, RunFolder, find_runs
from canet.training.summary import Scored

OOD_MEAN = "ood"
"""Stands for the mean over a task's OOD sets where the name of a split is asked for."""
OOD_LAST = "ood, last epoch"
"""The same without selection, at the last epoch."""


@dataclass(frozen=True)
class FinishedRun(Scored):
    """A finished run with its scores, those on extra test sets too, and its folder."""

    place: RunFolder = field(compare=False)

    def has(self, split: str) -> bool:
        """Whether it has a score; `split` is a name in result.json or of an extra set, or `ood`."""
        if split == OOD_LAST:
            return "last_scores" in self.result
        return split == OOD_MEAN or split in self.scores

    def score(self, split: str) -> float:
        """In percent; NaN where it has none."""
        if split == OOD_LAST:
            return Scored(self.config, {"scores": self.result["last_scores"]}).ood_mean
        return self.ood_mean if split == OOD_MEAN else self.scores.get(split, math.nan)


@dataclass(frozen=True)
class Result:
    """Finished runs that differ in their seed alone, in the order of their seeds.

    Args:
        config: What they have in common, with seed 0.
        runs: Each of them.
    """

    config: RunConfig
    runs: list[FinishedRun]

    def score(self, split: str) -> Score:
        """Over the runs; `split` as in `FinishedRun.score`."""
        return Score([run.score(split) for run in self.runs])


def read_results(root: Path, extra_sets: Sequence[ExtraSet] = ()) -> list[Result]:
    """The finished runs at or below `root`, grouped; unfinished ones are left out."""
    return results_of(find_runs(root), extra_sets)


def results_of(places: Iterable[RunFolder], extra_sets: Sequence[ExtraSet] = ()) -> list[Result]:
    """Finished runs grouped by everything but their seed, in order of first appearance.

    The same config gives the same run, so of several copies of a run only the first counts.
    """
    found: dict[str, dict[int, RunFolder]] = {}
    for place in places:
        config = place.read_config()
        found.setdefault(config.name, {}).setdefault(config.seed, place)
    results = []
    for by_seed in found.values():
        runs = [read_run(place, extra_sets) for _, place in sorted(by_seed.items())]
        results.append(Result(replace(runs[0].config, seed=0), runs))
    return results


def read_run(place: RunFolder, extra_sets: Sequence[ExtraSet] = ()) -> FinishedRun:
    """A finished run with its scores on those extra test sets that it has."""
    config, result = place.read_config(), place.read_result()
    for extra in extra_sets:
        if extra.task == config.task and (found := extra.read(place)):
            result["scores"] |= found
    return FinishedRun(config, result, place)

"""Many run folders → results: the one reader of finished runs that tables and reports use."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from canet.errors import CanetError, InputWarning
from canet.report.context import ExtraSet
from canet.report.score import Score
from canet.store import RunConfig, RunFolder, find_runs
from canet.store.config import grouped
from canet.store.soundness import check_metrics, check_result, check_under_shift
from canet.store.summary import Scored

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


class Found(NamedTuple):
    """What lies at a place: the results, and a line for each run that is left out of them."""

    results: list[Result]
    left_out: list[str]


def read_results(root: Path, extra_sets: Sequence[ExtraSet] = ()) -> list[Result]:
    """The finished runs at or below `root`, grouped; see `find_results` for what is left out."""
    return find_results(root, extra_sets).results


def find_results(root: Path, extra_sets: Sequence[ExtraSet] = ()) -> Found:
    """The finished runs at or below `root`, grouped; unfinished and damaged ones are left out.

    Each damaged run is named by a warning and by a line in which paths start at `root`.

    Raises:
        CanetError: Nothing is left.
    """
    results, errors = _grouped(find_runs(root), extra_sets)
    if not results:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise CanetError(f"no run at '{root}' can be used: {errors[0]}{more}")
    left_out = [error.replace(f"{root}{os.sep}", "") for error in errors]
    for line in left_out:
        warnings.warn(f"left out a run: {line}", InputWarning, stacklevel=2)
    return Found(results, left_out)


def results_of(places: Iterable[RunFolder], extra_sets: Sequence[ExtraSet] = ()) -> list[Result]:
    """Finished runs grouped by everything but their seed, in order of first appearance.

    Of several copies of a run only the first sound one counts.

    Raises:
        CanetError: A run is damaged.
    """
    results, errors = _grouped(places, extra_sets)
    if errors:
        raise CanetError(errors[0])
    return results


def _grouped(
    places: Iterable[RunFolder], extra_sets: Sequence[ExtraSet]
) -> tuple[list[Result], list[str]]:
    """Results of the runs that are sound, and what is wrong with the others."""
    sound, errors = [], []
    for place in places:
        try:
            sound.append(read_run(place, extra_sets))
        except CanetError as error:
            errors.append(str(error))
    groups = [[*group.values()] for group in grouped((run.config, run) for run in sound)]
    return [Result(replace(runs[0].config, seed=0), runs) for runs in groups], errors


def read_run(place: RunFolder, extra_sets: Sequence[ExtraSet] = ()) -> FinishedRun:
    """A finished run with its scores on those extra test sets that it has.

    Raises:
        CanetError: A file of it is damaged, or holds what no run can have.
    """
    try:
        config, result = place.read_config(), place.read_result()
        check_result(result, place.path)
        check_under_shift(result, place.path)
        if place.has_metrics:
            check_metrics(place.read_metrics(), place.path)
        for extra in extra_sets:
            if extra.task == config.task and (found := extra.read(place)):
                check_result({**result, "scores": result["scores"] | found}, place.path)
                result["scores"] |= found
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise CanetError(
            f"the run in '{place.path}' cannot be read ({type(error).__name__}): delete the "
            "folder and train the run again"
        ) from error
    return FinishedRun(config, result, place)

"""Many run folders → results: the one reader of finished runs that tables and reports use."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from canet.errors import CanetError, InputWarning
from canet.report.context import ExtraSet
from canet.report.score import Score
from canet.store import RunConfig, find_runs
from canet.store.config import grouped
from canet.store.summary import FinishedRun, read_run


@dataclass(frozen=True)
class Result:
    """Finished runs in the order of their seeds; `config` is what they share, with seed 0."""

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
    """The finished runs at or below `root`, grouped; those that cannot be read are left out.

    Each of these has a warning and a line in which paths start at `root`.

    Raises:
        CanetError: Nothing is left.
    """
    runs, errors = [], []
    for place in find_runs(root):
        try:
            runs.append(with_extra_scores(read_run(place), extra_sets))
        except CanetError as error:
            errors.append(str(error))
    if not runs:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise CanetError(f"no run at '{root}' can be used: {errors[0]}{more}")
    left_out = [error.replace(f"{root}{os.sep}", "") for error in errors]
    for line in left_out:
        warnings.warn(f"left out a run: {line}", InputWarning, stacklevel=2)
    groups = [[*group.values()] for group in grouped((run.config, run) for run in runs)]
    return Found([Result(replace(g[0].config, seed=0), g) for g in groups], left_out)


def with_extra_scores(run: FinishedRun, extra_sets: Sequence[ExtraSet]) -> FinishedRun:
    """A finished run with its scores on those extra test sets that it has."""
    for extra in extra_sets:
        if extra.task == run.config.task:
            run = run.with_scores(extra.read(run.place))
    return run

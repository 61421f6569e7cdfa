"""Many run folders → finished runs: the one reader that tables and reports use."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from canet.errors import CanetError, InputWarning
from canet.report.context import ExtraSet
from canet.store import find_runs
from canet.store.config import grouped
from canet.store.summary import FinishedRun, read_run


def find_results(
    root: Path, extra_sets: Sequence[ExtraSet] = ()
) -> tuple[list[FinishedRun], list[str]]:
    """The finished runs at or below `root`, and a line for each run that cannot be read.

    Runs that differ in their seed alone follow each other by seed; of several copies of a run the
    first counts. Each run that is left out has a warning, too. Paths in the lines start at `root`.

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
    groups = grouped((run.config, run) for run in runs)
    return [run for group in groups for run in group.values()], left_out


def with_extra_scores(run: FinishedRun, extra_sets: Sequence[ExtraSet]) -> FinishedRun:
    """A finished run with its scores on those extra test sets that it has."""
    for extra in extra_sets:
        if extra.task == run.config.task:
            run = run.with_scores(extra.read(run.place))
    return run

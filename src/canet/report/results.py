"""Read the finished runs of a folder, for tables and reports."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from canet.errors import CanetError, warn_user
from canet.store import find_runs
from canet.store.config import group_by_configuration
from canet.store.summary import FinishedRun, read_run


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

"""Whether finished runs were trained on the data that there is now."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from canet.data import DATASETS
from canet.data.benchmarks.files import find
from canet.data.digest import DataDigest
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.runs.evaluate import load_task_of
from canet.store import RunConfig, RunFolder


def compare_data(
    places: Iterable[RunFolder],
    data_root: Path | None = None,
    quiet: bool = False,
    task: ShiftTask | None = None,
) -> None:
    """Reject finished runs on other data than there is now; nothing is downloaded for that.

    Runs whose data is not here, or that do not record it, are only counted.

    Args:
        places: Folders of runs, finished or not.
        data_root: Folder with raw data.
        quiet: Print nothing about runs that could not be compared.
        task: The task of all runs, where it is loaded already.
    """
    by_data: dict[tuple[object, ...], list[RunFolder]] = {}
    unknown = absent = 0
    for place in places:
        if place.finished and place.read_data() is None:
            unknown += 1
        elif place.finished:
            by_data.setdefault(place.read_config().task_key, []).append(place)
    for runs in by_data.values():
        data = task.digest if task else data_now(runs[0].read_config(), data_root)
        if data is None:
            absent += len(runs)
        else:
            for place in runs:
                place.check_data(data)
    reasons = {"do not record their data": unknown, "were trained on data that is not here": absent}
    for reason, count in reasons.items():
        if count and not quiet:
            print(f"{count} finished runs {reason}: they are used as they are", file=sys.stderr)


def data_now(config: RunConfig, data_root: Path | None) -> DataDigest | None:
    """The digest of a run's data as it is now; None where files are missing or cannot be read."""
    dataset = DATASETS.get(config.task)
    if dataset is None:
        return None
    features = None if config.features == "original" else config.features
    if not all(find(file, data_root) for file in dataset.files_for(features)):
        return None
    try:
        return load_task_of(config, data_root).digest
    except CanetError:
        return None

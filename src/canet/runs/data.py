"""Whether finished runs were trained on the data that there is now."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from canet.data import DATASETS
from canet.data.benchmarks.files import find
from canet.data.digest import DataDigest
from canet.errors import CanetError
from canet.runs.evaluate import load_task_of
from canet.runs.worker import data_of
from canet.store import RunConfig, RunFolder


def compare_data(
    places: Iterable[RunFolder], data_root: Path | None = None, quiet: bool = False
) -> None:
    """Refuse finished runs on other data than there is now; nothing is downloaded for that.

    Runs whose data is not here, or that are older than digests of data, are only counted.

    Args:
        places: Folders of runs, finished or not.
        data_root: Folder with raw data.
        quiet: Say nothing of runs that could not be compared.
    """
    by_data: dict[tuple[object, ...], list[tuple[RunFolder, RunConfig]]] = {}
    untold = absent = 0
    for place in places:
        if place.finished:
            if place.read_data() is None:
                untold += 1
            else:
                config = place.read_config()
                by_data.setdefault(data_of(config), []).append((place, config))
    for runs in by_data.values():
        config = runs[0][1]
        data = data_now(config, data_root)
        if data is None:
            absent += len(runs)
        else:
            for place, _ in runs:
                place.check_data(data)
    if not quiet:
        _tell(untold, "finished runs do not tell what data they were trained on")
        _tell(absent, "finished runs were trained on data that is not here")


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


def _tell(count: int, what: str) -> None:
    if count:
        print(f"{count} {what}: they are taken as they are", file=sys.stderr)

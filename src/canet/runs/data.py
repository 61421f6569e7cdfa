"""Check that finished runs were trained on the present data."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from canet.data import DATASETS
from canet.data.benchmarks.files import find
from canet.data.digest import DataDigest
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.runs.evaluate import load_task_of
from canet.store import RunConfig, RunFolder

logger = logging.getLogger("canet")


def compare_data(
    folders: Iterable[RunFolder],
    data_root: Path | None = None,
    quiet: bool = False,
    task: ShiftTask | None = None,
) -> None:
    """Reject finished runs that were trained on other data; nothing is downloaded.

    Runs without a record of their data, or with missing data, are accepted and, unless `quiet`,
    counted. `task` is that of all runs, if it is already loaded.
    """
    by_data: dict[tuple[object, ...], list[RunFolder]] = {}
    without_record = missing = 0
    for folder in folders:
        if not folder.finished:
            continue
        start = folder.read_start()
        if start.data is None:
            without_record += 1
        else:
            by_data.setdefault(start.config.task_key, []).append(folder)
    for runs in by_data.values():
        data = task.digest if task else _current_digest(runs[0].read_config(), data_root)
        if data is None:
            missing += len(runs)
        else:
            for folder in runs:
                folder.check_data(data)
    reasons = {"have no record of their data": without_record, "have missing raw data": missing}
    for reason, count in reasons.items():
        if count and not quiet:
            logger.warning(
                "%d finished runs %s: they are used without comparing their data", count, reason
            )


def _current_digest(config: RunConfig, data_root: Path | None) -> DataDigest | None:
    """Return the digest of a run's data; None if files are missing or cannot be read."""
    dataset = DATASETS.get(config.task)
    features = None if config.features == "original" else config.features
    if dataset and not all(find(file, data_root) for file in dataset.files_for(features)):
        return None
    try:
        return load_task_of(config, data_root).digest
    except CanetError:
        return None

"""Check finished runs: score them again from their weights, and compare their data."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from canet.data import DATASETS, load_task
from canet.data.benchmarks.dataset import USER_GRAPH
from canet.data.benchmarks.files import find
from canet.data.digest import DataDigest
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.models import Learner, Options, describe_method, get_learner
from canet.runs.comparison_task import TASK_FILE, read_task
from canet.settings import override
from canet.store import RunConfig, RunFolder, find_runs
from canet.store.config import group_by_configuration
from canet.store.result import versions
from canet.store.summary import ScoredRun, summarise
from canet.util.devices import device_name

MAX_DIFFERENCE, MAX_DIFFERENCE_OTHER_HARDWARE = 1e-5, 0.005
"""Largest difference from the stored scores on the same device and version of torch, and on
another one, where rounding changes the predictions of a few nodes."""
logger = logging.getLogger("canet")


def evaluate_runs(
    path: Path, device: str = "auto", data_root: Path | None = None
) -> list[dict[str, Any]]:
    """Return a summary, as from `canet train`, for each configuration in the folder `path`.

    Copies of a run count once. If scores differ from the stored scores, the entry `differences` of
    the summary has a line for each such run.
    """
    groups = group_by_configuration((folder.read_config(), folder) for folder in find_runs(path))
    return [_evaluate([*group.values()], device, data_root) for group in groups]


def _evaluate(folders: list[RunFolder], device: str, data_root: Path | None) -> dict[str, Any]:
    """Return the summary of runs that differ only in their seed."""
    results = [folder.read_result() for folder in folders]
    config = folders[0].read_config()
    if config.task == USER_GRAPH and data_root is None:  # the folder of `canet compare`
        parents = folders[0].path.absolute().parents
        data_root = next((p for p in parents if (p / TASK_FILE).exists()), None)
    task, learner = load_task_of(config, data_root), open_learner(config, device)
    runs, differences = [], []
    hardware = device_name(learner.device, config.threads), versions()["torch"]
    for folder, result in zip(folders, results, strict=True):
        scores = learner.scores(task, learner.load(task, folder))
        before = result.device, result.versions.get("torch")
        tolerance = MAX_DIFFERENCE if hardware == before else MAX_DIFFERENCE_OTHER_HARDWARE
        if found := difference(scores, result.scores, tolerance):
            differences.append(f"'{folder.path}': {found}")
        runs.append(ScoredRun(folder.read_config(), replace(result, scores=scores)))
    summary = summarise(runs, task.metric)
    return summary | ({"differences": differences} if differences else {})


def difference(now: Mapping[str, float], stored: Mapping[str, float], tolerance: float) -> str:
    """Describe the largest difference of scores; empty if all are within the tolerance."""
    gaps = {
        split: np.nan_to_num(abs(score - now[split]), nan=np.inf)
        for split, score in stored.items()
        if split in now and not np.isclose(score, now[split], 0.0, tolerance, equal_nan=True)
    }
    if not gaps:
        return ""
    worst = max(gaps, key=lambda split: gaps[split])
    return (
        f"the score of {worst} is {100 * now[worst]:.2f} %, but the stored result is "
        f"{100 * stored[worst]:.2f} %"
    )


def open_learner(config: RunConfig, device: str) -> Learner:
    """Return the learner of a run."""
    settings = override(describe_method(config.method).settings_type(), config.settings)
    options = Options(device, threads=config.threads)
    return get_learner(config.method, config.backbone, settings, options)


def load_task_of(config: RunConfig, data_root: Path | None) -> ShiftTask:
    """Load the task of a run."""
    if config.task == USER_GRAPH:
        return read_task(data_root)
    task, *arguments = config.task_key
    return load_task(task, data_root, *arguments)


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

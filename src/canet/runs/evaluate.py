"""Score finished runs again from their saved weights, and compare with the stored scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from canet.data import load_task
from canet.data.benchmarks.dataset import USER_GRAPH
from canet.data.task import ShiftTask
from canet.models import Learner, Options, describe_method, get_learner
from canet.runs.comparison import TASK_FILE, read_task
from canet.settings import override
from canet.store import RunConfig, RunFolder, find_runs
from canet.store.config import group_by_configuration
from canet.store.result import versions
from canet.store.summary import ScoredRun, summarise
from canet.util.devices import device_name

MAX_DIFFERENCE, MAX_DIFFERENCE_OTHER_HARDWARE = 1e-5, 0.005
"""Largest difference from the stored scores on the same device and version of torch, and on
another one, where rounding changes the predictions of a few nodes.
"""


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

"""Finished runs and their scores, and a summary of runs that differ only in their seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import numpy as np

from canet.errors import CanetError
from canet.store.config import RunConfig
from canet.store.result import RunResult
from canet.store.run_folder import RunFolder

SHOWN = (
    *("task", "method", "backbone", "protocol", "generator"),
    *("data_seed", "features", "inductive"),
)
"""Parts of the configuration that a summary has, besides the settings."""
OOD, LEFT_OUT = "ood/", "left_out/"
OOD_MEAN = "ood"  # name of the mean score over the OOD sets of a task
OOD_LAST = "ood, last epoch"  # name of the same mean at the last epoch, without selection


@dataclass(frozen=True)
class ScoredRun:
    """The config and the result of a run."""

    config: RunConfig
    result: RunResult

    @property
    def scores(self) -> Mapping[str, float]:
        return self.result.scores


@dataclass(frozen=True)
class FinishedRun(ScoredRun):
    """A finished run and its folder."""

    folder: RunFolder = field(compare=False)

    def has(self, split: str) -> bool:
        """Whether the run has a score for a split in result.json, or `ood`."""
        if split == OOD_LAST:
            return bool(self.result.last_scores)
        return split == OOD_MEAN or split in self.scores

    def score(self, split: str) -> float:
        """A score between 0 and 1; NaN if the run does not have it."""
        if split == OOD_LAST:
            return ood_mean(self.result.last_scores)
        return ood_mean(self.scores) if split == OOD_MEAN else self.scores.get(split, math.nan)


def read_run(folder: RunFolder) -> FinishedRun:
    """Read a finished run; it must have a score on test nodes, by which runs are compared."""
    run = FinishedRun(folder.read_config(), folder.read_result(), folder)
    if not any(name.startswith(OOD) or name == "test_id" for name in run.scores):
        raise CanetError(
            f"the run in '{folder.path}' has no score on test nodes: train it with a test set"
        )
    return run


def ood_mean(scores: Mapping[str, float]) -> float:
    """Mean over the OOD sets; NaN if there are none."""
    found = [score for name, score in scores.items() if name.startswith(OOD)]
    return mean(found) if found else math.nan


def standard_deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation: 0 for one value, NaN if a value is NaN."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def summarise(runs: Sequence[ScoredRun], metric: str) -> dict[str, Any]:
    """Summarise scores of runs that differ only in their seed, as `canet train --json` prints."""
    first = runs[0]

    def spread(values: Sequence[float]) -> dict[str, Any]:
        return {"mean": mean(values), "std": standard_deviation(values), "values": list(values)}

    def over_runs(split: str) -> dict[str, Any]:
        return spread([run.scores[split] for run in runs])

    def group(prefix: str) -> dict[str, Any]:
        names = [name for name in first.scores if name.startswith(prefix)]
        return {name.removeprefix(prefix): over_runs(name) for name in names}

    splits = [name for name in ("train", "valid", "test_id") if name in first.scores]
    scores: dict[str, Any] = {name: over_runs(name) for name in splits}
    if ood := group(OOD):
        scores["test_ood"] = ood
        scores["test_ood_mean"] = spread([ood_mean(run.scores) for run in runs])
    if left_out := group(LEFT_OUT):
        scores["left_out"] = left_out
    return {
        **{name: getattr(first.config, name) for name in SHOWN},
        "seeds": [run.config.seed for run in runs],
        "metric": metric,
        "selection": first.result.selection,
        "environments_seen": first.result.environments_seen,
        "scores": scores,
        "epochs": first.config.settings.get("epochs", 0),
        "epochs_run": [run.result.epochs for run in runs],
        "selected_epochs": [run.result.selected_epoch for run in runs],
        "seconds": mean(run.result.seconds for run in runs),
        "seconds_per_epoch": mean(run.result.seconds_per_epoch for run in runs),
        "peak_memory_mb": max(run.result.peak_memory_mb for run in runs),
        "settings": first.config.settings,
        "device": first.result.device,
        "versions": first.result.versions,
    }


def spread_text(spread: dict[str, Any]) -> str:
    """Return mean and standard deviation in percent, `96.39 ± 0.43`; of one run only the mean."""
    several = f" ± {100 * spread['std']:.2f}" if len(spread["values"]) > 1 else ""
    return f"{100 * spread['mean']:.2f}{several}"


def summary_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a row (name, score) for each score of a summary."""
    scores = summary["scores"]
    splits = [name for name in ("train", "valid", "test_id") if name in scores]
    rows = [(name, spread_text(scores[name])) for name in splits]
    if ood := scores.get("test_ood"):
        rows += [(f"test_ood {name}", spread_text(s)) for name, s in ood.items()]
        rows.append(("test_ood mean", spread_text(scores["test_ood_mean"])))
    left_out = scores.get("left_out", {})
    return rows + [(f"left out {name}", spread_text(s)) for name, s in left_out.items()]

"""Finished runs and their scores; several runs of one configuration → one summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any, Self

import numpy as np

from canet.errors import CanetError
from canet.store.config import RunConfig
from canet.store.result import RunResult
from canet.store.run_folder import RunFolder

OOD, LEFT_OUT = "ood/", "left_out/"
OOD_MEAN = "ood"
"""In place of the name of a split: the mean over a task's OOD sets."""
OOD_LAST = "ood, last epoch"
"""The same without selection, at the last epoch."""


@dataclass(frozen=True)
class Scored:
    """A run's config and its result."""

    config: RunConfig
    result: RunResult

    @property
    def scores(self) -> Mapping[str, float]:
        return self.result.scores

    @property
    def ood_mean(self) -> float:
        """Mean score over the OOD sets; NaN where there are none."""
        return ood_mean(self.scores)

    def with_scores(self, scores: Mapping[str, float]) -> Self:
        """The same run with these scores too, in place of those with the same names."""
        return replace(self, result=replace(self.result, scores={**self.scores, **scores}))


@dataclass(frozen=True)
class FinishedRun(Scored):
    """A finished run and its folder."""

    place: RunFolder = field(compare=False)

    def has(self, split: str) -> bool:
        """Whether it has a score; `split` is a name in result.json or of an extra set, or `ood`."""
        if split == OOD_LAST:
            return bool(self.result.last_scores)
        return split == OOD_MEAN or split in self.scores

    def score(self, split: str) -> float:
        """In percent; NaN where it has none."""
        if split == OOD_LAST:
            return ood_mean(self.result.last_scores)
        return self.ood_mean if split == OOD_MEAN else self.scores.get(split, math.nan)


def read_run(place: RunFolder) -> FinishedRun:
    """A finished run with at least one score under shift, which is what is compared."""
    run = FinishedRun(place.read_config(), place.read_result(), place)
    if not any(name.startswith(OOD) for name in run.scores):
        raise CanetError(
            f"the run in '{place.path}' has no score under shift: give the task a test_ood set and "
            "train the run again"
        )
    return run


def ood_mean(scores: Mapping[str, float]) -> float:
    """Mean over the OOD sets; NaN where there are none."""
    found = [score for name, score in scores.items() if name.startswith(OOD)]
    return mean(found) if found else math.nan


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample: 0 for one value, NaN where a value is."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def summarise(runs: Sequence[Scored], metric: str) -> dict[str, Any]:
    """The object that `canet train --json` prints, for runs that differ only in their seed.

    Mean, standard deviation and values of each score, in percent. The standard deviation is that
    of a sample, 0 for one run.
    """
    first = runs[0]

    def spread(values: Sequence[float]) -> dict[str, Any]:
        return {"mean": mean(values), "std": deviation(values), "values": list(values)}

    def over_runs(split: str) -> dict[str, Any]:
        return spread([run.scores[split] for run in runs])

    def group(prefix: str) -> dict[str, Any]:
        names = [name for name in first.scores if name.startswith(prefix)]
        return {name.removeprefix(prefix): over_runs(name) for name in names}

    scores: dict[str, Any] = {name: over_runs(name) for name in ("train", "valid", "test_id")}
    scores["test_ood"] = group(OOD)
    scores["test_ood_mean"] = spread([run.ood_mean for run in runs])
    if left_out := group(LEFT_OUT):
        scores["left_out"] = left_out
    return {
        "task": first.config.task,
        "method": first.config.method,
        "backbone": first.config.backbone,
        "protocol": first.config.protocol,
        "generator": first.config.generator,
        "data_seed": first.config.data_seed,
        "features": first.config.features,
        "inductive": first.config.inductive,
        "seeds": [run.config.seed for run in runs],
        "metric": metric,
        "selection": first.result.selection,
        "environments_seen": first.result.environments_seen,
        "scores": scores,
        "epochs": first.config.settings["epochs"],
        "epochs_run": [run.result.epochs for run in runs],
        "selected_epochs": [run.result.selected_epoch for run in runs],
        "seconds_per_epoch": mean(run.result.seconds_per_epoch for run in runs),
        "peak_memory_mb": max(run.result.peak_memory_mb for run in runs),
        "settings": first.config.settings,
        "device": first.result.device,
        "versions": first.result.versions,
    }

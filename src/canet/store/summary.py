"""Several runs of one configuration → one summary: the object that `canet train --json` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np

from canet.errors import CanetError
from canet.store.config import RunConfig

OOD, LEFT_OUT = "ood/", "left_out/"
NEEDED = {
    *("scores", "selection", "selected_epoch", "environments_seen", "epochs"),
    *("seconds_per_epoch", "peak_memory_mb", "device", "versions"),
}
"""What a result holds; one written by an earlier version may lack some of it."""


@dataclass(frozen=True)
class Scored:
    """A run's config, its result and the scores in it."""

    config: RunConfig
    result: Mapping[str, Any]

    @property
    def scores(self) -> Mapping[str, float]:
        scores: Mapping[str, float] = self.result["scores"]
        return scores

    @property
    def ood_mean(self) -> float:
        """Mean score over the OOD sets; NaN where there are none."""
        scores = [score for name, score in self.scores.items() if name.startswith(OOD)]
        return mean(scores) if scores else math.nan


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample: 0 for one value, NaN where a value is."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def summarise(runs: Sequence[Scored], metric: str) -> dict[str, Any]:
    """Mean, standard deviation and values of each score, in percent, over runs with equal settings.

    Runs differ in their seed alone. The standard deviation is that of a sample, 0 for one run.
    """
    first = runs[0]
    for run in runs:
        if missing := NEEDED - run.result.keys():
            raise CanetError(
                f"the result of {run.config.task} seed {run.config.seed} lacks "
                f"{', '.join(sorted(missing))}: delete its folder and train the run again"
            )
    if "epochs" not in first.config.settings:
        raise CanetError(
            f"the settings of {first.config.task} seed {first.config.seed} do not tell epochs: "
            "delete its folder and train the run again"
        )

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
        "selection": first.result["selection"],
        "environments_seen": first.result["environments_seen"],
        "scores": scores,
        "epochs": first.config.settings["epochs"],
        "epochs_run": [run.result["epochs"] for run in runs],
        "selected_epochs": [run.result["selected_epoch"] for run in runs],
        "seconds_per_epoch": mean(run.result["seconds_per_epoch"] for run in runs),
        "peak_memory_mb": max(run.result["peak_memory_mb"] for run in runs),
        "settings": first.config.settings,
        "device": first.result["device"],
        "versions": first.result["versions"],
    }

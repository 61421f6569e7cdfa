"""The result of a run: the content of result.json."""

import math
import platform
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, ClassVar

import torch

from canet._version import __version__
from canet.methods.base import Findings


def versions() -> dict[str, str]:
    """Return the versions on which a result depends."""
    return {"canet": __version__, "python": platform.python_version(), "torch": torch.__version__}


@dataclass(frozen=True)
class InferredEnvironments:
    """The pseudo-environments that a trained model infers.

    Args:
        posterior: Mean posterior of each pseudo-environment, by split and layer.
        effective: Effective number of pseudo-environments of the training nodes, by layer: the
            exponential of the entropy of their mean posterior.
        alignment: Adjusted mutual information of the most probable pseudo-environment and the
            environment label of the training nodes, by layer; None without environment labels.
    """

    posterior: dict[str, list[list[float]]]
    effective: list[float]
    alignment: list[float] | None


@dataclass(frozen=True)
class Candidate:
    """A model that `auto` has compared; scores are between 0 and 1.

    Args:
        name: Name of the model, such as `erm-sage norm=layer`.
        validation: Score on the validation nodes.
        shifts: Name of a simulated shift → score on the held-out part.
        likelihood: Mean logarithm of the probability of the right class, over the validation nodes
            and each held-out part.
        weight: Weight in the average of the predictions; 0 if the model is not part of it.
        seconds: Time of all its trainings.
        note: Why the model has no scores, or what it is if it was not a candidate.
    """

    name: str
    validation: float = math.nan
    shifts: dict[str, float] = field(default_factory=dict)
    likelihood: float = math.nan
    weight: float = 0.0
    seconds: float = 0.0
    note: str = ""

    @property
    def held_out(self) -> float:
        """Mean score on the held-out parts; NaN if there are none."""
        return mean(self.shifts.values()) if self.shifts else math.nan


@dataclass(frozen=True)
class RunResult:
    """Scores between 0 and 1, the selection rule, timing and versions of a run.

    Args:
        scores: Scores of all splits at the selected epoch; NaN if the output is not finite.
        last_scores: Scores of all splits at the last epoch; empty if they were not recorded.
        selection: Name of the rule that selected the epoch.
        selected_epoch: Counted from 1; 0 if several models were trained.
        environments_seen: Names of the environment labels that the method used; None if it used
            none.
        inferred_environments: Pseudo-environments; None if the method infers none.
        findings: Statistics of the training nodes that the method computed; None for most methods.
        epochs: Number of trained epochs, over all trainings of `auto`.
        seconds_per_epoch: Mean over the epochs of the process that finished the run.
        runs_at_once: Number of runs that shared the device.
        peak_memory_mb: NaN if unknown.
        device: Name of the device.
        versions: Versions of canet, Python and torch.
        candidates: The models that `auto` tried, in the order of training; empty for other methods.
        model: The model apart from its tensors; empty for a network, which the config describes.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    scores: dict[str, float]
    selection: str
    selected_epoch: int
    environments_seen: list[str] | None
    epochs: int
    seconds_per_epoch: float
    peak_memory_mb: float
    device: str
    versions: dict[str, str]
    last_scores: dict[str, float] = field(default_factory=dict)
    inferred_environments: InferredEnvironments | None = None
    findings: Findings | None = None
    runs_at_once: int = 1
    candidates: list[Candidate] = field(default_factory=list)
    model: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Training time; all of the time of a model without epochs."""
        return self.seconds_per_epoch * max(1, self.epochs)

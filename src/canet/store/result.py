"""What a run gave: the content of result.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import mean
from typing import Any, ClassVar

from canet.methods.base import Findings


@dataclass(frozen=True)
class InferredEnvironments:
    """The environments that a trained model infers.

    Args:
        posterior: Mean posterior of each environment, by split and layer.
        effective: By layer, how many environments the training nodes use: the exponential of the
            entropy of their mean posterior.
        alignment: By layer, adjusted mutual information of a training node's likeliest environment
            and its true one; None where the task has no environment labels.
    """

    posterior: dict[str, list[list[float]]]
    effective: list[float]
    alignment: list[float] | None


@dataclass(frozen=True)
class Candidate:
    """A model that `auto` has tried; scores are between 0 and 1.

    Args:
        name: Such as `erm-sage norm=layer`.
        method, backbone, settings: What it is; all settings by name.
        validation: Its score on the validation nodes.
        shifts: Name of each simulated shift → the score on the part that was held out.
        weight: Its part in the average that predicts; 0 where it is not a member.
        seconds: How long its trainings took.
    """

    name: str
    method: str
    backbone: str
    settings: dict[str, Any]
    validation: float
    shifts: dict[str, float]
    weight: float
    seconds: float

    @property
    def rating(self) -> float:
        """What candidates are chosen by: the mean of validation and mean score under shift."""
        under_shift = mean(self.shifts.values()) if self.shifts else self.validation
        return (self.validation + under_shift) / 2


@dataclass(frozen=True)
class RunResult:
    """Scores between 0 and 1, the selection rule, timing and versions of a run.

    Args:
        scores: Of every split at the selected epoch; NaN if the model's output is not finite.
        last_scores: The same at the last epoch; empty if they were not recorded.
        selection: Name of the rule that selected the epoch.
        selected_epoch: Counted from 1; 0 where several models were trained.
        environments_seen: Names of the environment labels that the method used; None if none.
        inferred_environments: What the model inferred; None for a method that infers none.
        findings: What the method found in the training nodes; None for most methods.
        epochs: How many were trained.
        seconds_per_epoch: Mean over the epochs of the process that finished the run.
        runs_at_once: How many runs shared the device.
        peak_memory_mb: NaN if not known.
        device: Name of the device.
        versions: Of canet, Python and torch.
        candidates: What `auto` has tried, in the order of training; empty for other methods.
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

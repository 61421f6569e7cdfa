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
    """The pseudo-environments that a trained model infers."""

    posterior: dict[str, list[list[float]]]  # the mean of each, by split and layer
    # Exponential of the entropy of the mean posterior of the training nodes, by layer.
    effective: list[float]
    # Adjusted mutual information of the most probable pseudo-environment and the environment label
    # of the training nodes, by layer; None without environment labels.
    alignment: list[float] | None


@dataclass(frozen=True)
class Candidate:
    """A model that `auto` has compared; scores are between 0 and 1."""

    name: str  # such as `erm-sage norm=layer`
    validation: float = math.nan
    shifts: dict[str, float] = field(default_factory=dict)  # simulated shift → held-out score
    # Mean log probability of the right class, over the validation nodes and each held-out part.
    likelihood: float = math.nan
    weight: float = 0.0  # in the average of the predictions; 0 if it is not part of it
    seconds: float = 0.0  # time of all its trainings
    note: str = ""  # why it has no scores, or what it is if it was not a candidate

    @property
    def held_out(self) -> float:
        """Mean score on the held-out parts; NaN if there are none."""
        return mean(self.shifts.values()) if self.shifts else math.nan


@dataclass(frozen=True)
class RunResult:
    """Scores between 0 and 1, the selection rule, timing and versions of a run."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    scores: dict[str, float]  # of all splits at the selected epoch; NaN if an output is not finite
    selection: str  # name of the rule that selected the epoch
    selected_epoch: int  # counted from 1; 0 if several models were trained
    environments_seen: list[str] | None  # labels that the method used; None if it used none
    epochs: int  # number of trained epochs, over all trainings of `auto`
    seconds_per_epoch: float  # mean over the epochs of the process that finished the run
    peak_memory_mb: float  # NaN if unknown
    device: str
    versions: dict[str, str]  # of canet, Python and torch
    last_scores: dict[str, float] = field(default_factory=dict)  # at the last epoch, if recorded
    inferred_environments: InferredEnvironments | None = None
    findings: Findings | None = None  # statistics of the training nodes; None for most methods
    runs_at_once: int = 1  # number of runs that shared the device
    candidates: list[Candidate] = field(default_factory=list)  # of `auto`, in order of training
    # The model apart from its tensors; empty for a network, which the config describes.
    model: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Training time; all of the time of a model without epochs."""
        return self.seconds_per_epoch * max(1, self.epochs)

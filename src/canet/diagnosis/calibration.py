"""Calibration error and bins of a reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from canet.diagnosis.estimate import Estimate, share

NUM_BINS = 15


@dataclass(frozen=True)
class Bin:
    """The nodes whose confidence is in one of 15 intervals of equal width."""

    confidence: float  # mean confidence
    accuracy: Estimate
    num_nodes: int


def reliability_bins(confidence: np.ndarray, correct: np.ndarray) -> list[Bin]:
    """Accuracy by confidence $[n]$, in 15 bins of equal width; empty bins are left out."""
    number = np.clip(np.ceil(confidence * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
    return [
        Bin(float(confidence[inside].mean()), share(correct[inside]), int(inside.sum()))
        for inside in (number == i for i in np.unique(number))
    ]


def calibration_error(bins: list[Bin]) -> float:
    r"""Expected calibration error: $\sum_b \frac{n_b}{n} |acc_b - conf_b|$."""
    gaps = [abs(b.accuracy.value - b.confidence) for b in bins]
    return float(np.average(gaps, weights=[b.num_nodes for b in bins]))

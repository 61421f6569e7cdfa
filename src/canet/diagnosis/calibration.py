"""Whether probabilities can be believed: temperature, calibration error, reliability diagram."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from canet.diagnosis.estimate import Estimate, share

BINS = 15
COLDEST, HOTTEST = 0.05, 50.0


@dataclass(frozen=True)
class Bin:
    """Nodes whose confidence lies in one of the equal parts of 0 to 1.

    Args:
        confidence: Their mean confidence, in percent.
        accuracy: Percent that are right.
        nodes: How many there are.
    """

    confidence: float
    accuracy: Estimate
    nodes: int


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Probabilities $[n, C]$ of logits $[n, C]$ divided by a temperature."""
    scaled = (logits - logits.max(axis=1, keepdims=True)) / temperature
    weights = np.exp(scaled)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def fit_temperature(logits: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> float:
    r"""The temperature T that makes labels $[n]$ likeliest.

    It minimises $-\sum_v w_v \log \mathrm{softmax}(z_v / T)_{y_v}$ over $\log T$ (Guo et al., "On
    calibration of modern neural networks", ICML '17). Above 1: the model is too sure of itself.

    Args:
        logits: $z$, $[n, C]$.
        y: Class numbers.
        weight: $w$, $[n]$; all 1 where None.
    """
    from scipy.optimize import minimize_scalar

    below = logits - logits[np.arange(len(y)), y][:, None]
    highest = below.max(axis=1)
    below = below - highest[:, None]

    def loss(log_temperature: float) -> float:
        t = math.exp(log_temperature)
        nll = np.log(np.exp(below / t).sum(axis=1)) + highest / t
        return float(np.average(nll, weights=weight))

    bounds = (math.log(COLDEST), math.log(HOTTEST))
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def reliability(confidence: np.ndarray, right: np.ndarray) -> list[Bin]:
    """Accuracy by confidence: nodes $[n]$ in 15 bins of equal width, empty ones left out."""
    number = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    chosen = [number == i for i in range(BINS)]
    return [
        Bin(float(100 * confidence[inside].mean()), share(right[inside]), int(inside.sum()))
        for inside in chosen
        if inside.any()
    ]


def calibration_error(bins: list[Bin]) -> float:
    r"""Expected calibration error in points: $\sum_b \frac{n_b}{n} |acc_b - conf_b|$."""
    nodes = np.array([b.nodes for b in bins])
    gaps = np.array([abs(b.accuracy.value - b.confidence) for b in bins])
    return float((nodes * gaps).sum() / nodes.sum())

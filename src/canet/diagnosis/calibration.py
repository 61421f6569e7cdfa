"""Whether probabilities can be believed: temperature, calibration error, reliability diagram."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.special import softmax as scipy_softmax

from canet.diagnosis.estimate import Estimate, share

BINS = 15
COLDEST, HOTTEST = 0.05, 50.0


@dataclass(frozen=True)
class Bin:
    """Nodes whose confidence lies in one of the equal parts of 0 to 1."""

    confidence: float  # their mean confidence, in percent
    accuracy: Estimate  # percent that are right
    nodes: int  # how many there are


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Probabilities $[n, C]$ of logits $[n, C]$ divided by a temperature."""
    return np.asarray(scipy_softmax(logits / temperature, axis=1))


def fit_temperature(logits: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> float:
    r"""The temperature T that makes labels $[n]$ likeliest.

    It minimises $-\sum_v w_v \log \mathrm{softmax}(z_v / T)_{y_v}$ over $\log T$ (Guo et al., "On
    calibration of modern neural networks", ICML '17), for logits $z$ $[n, C]$ and weights $w$
    $[n]$, all 1 where None. Above 1: the model is overconfident.
    """
    margin = logits - logits[np.arange(len(y)), y][:, None]

    def loss(log_temperature: float) -> float:
        losses = logsumexp(margin / math.exp(log_temperature), axis=1)
        return float(np.average(losses, weights=weight))

    bounds = (math.log(COLDEST), math.log(HOTTEST))
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def reliability(confidence: np.ndarray, right: np.ndarray) -> list[Bin]:
    """Accuracy by confidence: nodes $[n]$ in 15 bins of equal width, without empty ones."""
    number = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    return [
        Bin(float(100 * confidence[inside].mean()), share(right[inside]), int(inside.sum()))
        for inside in (number == i for i in np.unique(number))
    ]


def calibration_error(bins: list[Bin]) -> float:
    r"""Expected calibration error in points: $\sum_b \frac{n_b}{n} |acc_b - conf_b|$."""
    gaps = [abs(b.accuracy.value - b.confidence) for b in bins]
    return float(np.average(gaps, weights=[b.nodes for b in bins]))

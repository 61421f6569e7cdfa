"""Whether probabilities can be believed: temperature, calibration error, reliability diagram."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp
from scipy.special import softmax as scipy_softmax

from canet.diagnosis.estimate import Estimate, share

BINS = 15
COLDEST, HOTTEST = 0.05, 50.0
SPREAD, BIAS_SPREAD = 0.5, 4.0  # standard deviations of a log temperature and a bias, a priori


@dataclass(frozen=True)
class Bin:
    """Nodes whose confidence lies in one of the equal parts of 0 to 1."""

    confidence: float  # their mean confidence
    accuracy: Estimate  # share that is right
    nodes: int  # how many there are


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Probabilities $[n, C]$ of logits $[n, C]$ divided by a temperature."""
    return np.asarray(scipy_softmax(logits / temperature, axis=1))


def fit_temperature(logits: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> float:
    r"""The temperature T that makes labels $[n]$ likeliest.

    It minimises $-\sum_v w_v \log \mathrm{softmax}(z_v / T)_{y_v}$ over $\log T$ (Guo et al., "On
    calibration of modern neural networks", ICML '17), for logits $z$ $[n, C]$ and weights $w$
    $[n]$, all 1 where None. Above 1: the model is overconfident. The prior
    $\log T \sim N(0, \frac{1}{4})$ keeps T near 1 where few nodes say otherwise.
    """
    weight = np.ones(len(y)) if weight is None else weight
    used = np.flatnonzero(weight)
    weight, total = weight[used], weight.sum()
    highest = logits[used].max(axis=1)
    above = highest - logits[used, y[used]]
    below = np.ascontiguousarray((logits[used] - highest[:, None]).T)

    def loss(log_temperature: float) -> float:
        temperature = math.exp(log_temperature)
        losses = above / temperature + np.log(np.exp(below / temperature).sum(axis=0))
        prior = (log_temperature / SPREAD) ** 2 / 2
        return float((weight @ losses + prior) / total)

    bounds = (math.log(COLDEST), math.log(HOTTEST))
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def fit_bias(logits: np.ndarray, y: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    r"""The log temperature and a bias for each class $[1 + C]$ that make labels $[n]$ likeliest.

    Bias-corrected temperature scaling (Alexandari et al., ICML '20): a model with class weights
    gives rare classes too much probability, which no temperature corrects.
    """
    n, hot = len(y), np.eye(logits.shape[1])[y]
    prior = np.array([SPREAD, *[BIAS_SPREAD] * logits.shape[1]]) ** -2.0

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        scaled = logits / math.exp(theta[0])
        shifted = scaled + theta[1:]
        excess = scipy_softmax(shifted, axis=1) - hot
        value = (logsumexp(shifted, axis=1) - (shifted * hot).sum(axis=1)).sum()
        slope = np.array([-(excess * scaled).sum(), *excess.sum(axis=0)])
        return (value + (prior * theta**2).sum() / 2) / n, (slope + prior * theta) / n

    bounds = [(math.log(COLDEST), math.log(HOTTEST)), *[(None, None)] * logits.shape[1]]
    first = np.zeros(1 + logits.shape[1]) if start is None else start
    return np.asarray(minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds).x)


def rescaled(logits: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Probabilities $[n, C]$ with the log temperature and biases $[1 + C]$ of `fit_bias`."""
    return softmax(logits / math.exp(theta[0]) + theta[1:])


def reliability(confidence: np.ndarray, right: np.ndarray) -> list[Bin]:
    """Accuracy by confidence: nodes $[n]$ in 15 bins of equal width, without empty ones."""
    number = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    return [
        Bin(float(confidence[inside].mean()), share(right[inside]), int(inside.sum()))
        for inside in (number == i for i in np.unique(number))
    ]


def calibration_error(bins: list[Bin]) -> float:
    r"""Expected calibration error: $\sum_b \frac{n_b}{n} |acc_b - conf_b|$."""
    gaps = [abs(b.accuracy.value - b.confidence) for b in bins]
    return float(np.average(gaps, weights=[b.nodes for b in bins]))

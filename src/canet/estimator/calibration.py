"""Temperature scaling, class biases and a threshold, learnt from validation nodes."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp
from scipy.special import softmax as scipy_softmax
from sklearn.metrics import precision_recall_curve
from torch import Tensor

from canet.estimator.reference import Reference
from canet.store.model_folder import Calibration

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 50.0
LOG_TEMPERATURE_STD, BIAS_STD = 0.5, 4.0  # of the normal priors


def calibrate(reference: Reference, has_class_weights: bool) -> Calibration:
    """Learn corrections of the probabilities from the validation nodes of the reference sample.

    A bias for each class is only needed for a model that was trained with class weights.
    """
    logits, y = reference.valid_logits.double().numpy(), reference.valid_y.numpy()
    if has_class_weights:
        theta = fit_bias(logits, y)
        scale = {"temperature": math.exp(theta[0]), "bias": theta[1:].tolist()}
    else:
        scale = {"temperature": fit_temperature(logits, y)}
    counts = reference.train_label_counts
    if counts.numel() != 2:
        return Calibration(**scale)
    positive = int(counts.argmin()) if counts[0] != counts[1] else 1
    threshold = 0.5
    if (y == positive).any():
        probability = softmax(logits)[:, positive]
        precision, recall, thresholds = precision_recall_curve(y == positive, probability)
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        threshold = float(thresholds[f1[:-1].argmax()])
    return Calibration(**scale, positive=positive, threshold=threshold)


def probabilities_of(logits: Tensor, calibration: Calibration | None = None) -> np.ndarray:
    """Return the probability of each class $[n, C]$ for logits $[n, C]$."""
    scaled = logits.double()
    if calibration is not None:
        scaled = scaled / calibration.temperature
        if calibration.bias:
            scaled = scaled + scaled.new_tensor(calibration.bias)
    return scaled.softmax(dim=1).numpy()


def calibrated_threshold(calibration: Calibration, threshold: float) -> float:
    """Return the calibrated probability of the rarer class that belongs to a raw one."""
    if not 0 < threshold < 1 or calibration.positive is None:
        return threshold
    difference = math.log(threshold / (1 - threshold)) / calibration.temperature
    if calibration.bias:
        positive = calibration.positive
        difference += calibration.bias[positive] - calibration.bias[1 - positive]
    return 1 / (1 + math.exp(-difference))


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Class probabilities $[n, C]$ of logits $[n, C]$ at a temperature."""
    return np.asarray(scipy_softmax(logits / temperature, axis=1))


def fit_temperature(logits: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> float:
    r"""Fit the temperature T of temperature scaling to class indices $[n]$.

    T minimises $-\sum_v w_v \log \mathrm{softmax}(z_v / T)_{y_v}$ (Guo et al., "On calibration of
    modern neural networks", ICML '17) for logits $z$ $[n, C]$ and weights $w$ $[n]$, by default
    all 1. T > 1 means that the model is overconfident. The prior
    $\log T \sim N(0, \frac{1}{4})$ keeps T near 1 if there are few nodes.
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
        prior = (log_temperature / LOG_TEMPERATURE_STD) ** 2 / 2
        return float((weight @ losses + prior) / total)

    bounds = (math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE))
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def fit_bias(logits: np.ndarray, y: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    r"""Fit the log temperature and one bias per class $[1 + C]$ to class indices $[n]$.

    Bias-corrected temperature scaling (Alexandari et al., ICML '20). A model that was trained with
    class weights overestimates the probability of rare classes; a temperature cannot correct that.
    """
    n, hot = len(y), np.eye(logits.shape[1])[y]
    prior = np.array([LOG_TEMPERATURE_STD, *[BIAS_STD] * logits.shape[1]]) ** -2.0

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        scaled = logits / math.exp(theta[0])
        shifted = scaled + theta[1:]
        excess = scipy_softmax(shifted, axis=1) - hot
        value = (logsumexp(shifted, axis=1) - (shifted * hot).sum(axis=1)).sum()
        slope = np.array([-(excess * scaled).sum(), *excess.sum(axis=0)])
        return (value + (prior * theta**2).sum() / 2) / n, (slope + prior * theta) / n

    bounds = [
        (math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE)),
        *[(None, None)] * logits.shape[1],
    ]
    first = np.zeros(1 + logits.shape[1]) if start is None else start
    return np.asarray(minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds).x)


def calibrated_probabilities(logits: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Class probabilities $[n, C]$ with the parameters $[1 + C]$ of `fit_bias`."""
    return softmax(logits / math.exp(theta[0]) + theta[1:])

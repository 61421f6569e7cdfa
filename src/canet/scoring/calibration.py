"""Calibration: temperature, class biases and a threshold, learnt from validation nodes."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, Self, TypeAlias

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp, softmax

from canet.errors import InputError
from canet.scoring.metrics import rarer_class

LOG_TEMPERATURES = math.log(0.05), math.log(50.0)  # smallest and largest
SAME_PROBABILITY = 1e-9
"""Probabilities with a smaller difference are on the same side of a threshold."""
LOG_TEMPERATURE_STD, BIAS_STD = 0.5, 4.0  # of the normal priors
Threshold: TypeAlias = float | Literal["best"]
"""Probability of the rarer of two classes from which a node is assigned to it."""


@dataclass(frozen=True)
class Calibration:
    """Corrections of the probabilities, learnt from validation nodes after training."""

    temperature: float = 1.0  # divisor of the logits
    # Added to the logits of each class $[C]$ after that; empty: zero.
    bias: list[float] = field(default_factory=list)
    positive: int | None = None  # index of the rarer of two training classes; None for more classes
    # Probability of this class from which a node is assigned to it for the best F1.
    threshold: float = 0.5

    @classmethod
    def fit(cls, logits: np.ndarray, y: np.ndarray, metric: str, weighted: bool) -> Self:
        """Fit the calibration of a model to logits $[n, C]$ and class indices $[n]$.

        A model that was trained with class weights, or selected by another metric than accuracy,
        need not predict each class as often as it occurs. A temperature cannot correct that, so
        there is also a bias for each class.
        """
        if weighted or metric != "accuracy":
            return cls.fit_with_bias(logits, y)
        return cls.fit_temperature(logits, y)

    def refit(self, logits: np.ndarray, y: np.ndarray) -> Self:
        """Fit a calibration of the same kind to other nodes."""
        return (self.fit_with_bias if self.bias else self.fit_temperature)(logits, y)

    @classmethod
    def fit_temperature(cls, logits: np.ndarray, y: np.ndarray) -> Self:
        r"""Fit the temperature T of temperature scaling to class indices $[n]$.

        T minimises $-\sum_v \log \mathrm{softmax}(z_v / T)_{y_v}$ (Guo et al., "On calibration of
        modern neural networks", ICML '17) for logits $z$ $[n, C]$. T > 1 means that the model is
        overconfident. The prior $\log T \sim N(0, \frac{1}{4})$ keeps T near 1 if there are few
        nodes.
        """
        highest = logits.max(axis=1)
        above = highest - logits[np.arange(len(y)), y]
        below = np.ascontiguousarray((logits - highest[:, None]).T)

        def loss(log_temperature: float) -> float:
            temperature = math.exp(log_temperature)
            losses = above / temperature + np.log(np.exp(below / temperature).sum(axis=0))
            prior = (log_temperature / LOG_TEMPERATURE_STD) ** 2 / 2
            return float((losses.sum() + prior) / len(y))

        return cls(math.exp(minimize_scalar(loss, bounds=LOG_TEMPERATURES, method="bounded").x))

    @classmethod
    def fit_with_bias(cls, logits: np.ndarray, y: np.ndarray) -> Self:
        """Fit a temperature and one bias per class (Alexandari et al., ICML '20)."""
        n, hot = len(y), np.eye(logits.shape[1])[y]
        prior = np.array([LOG_TEMPERATURE_STD, *[BIAS_STD] * logits.shape[1]]) ** -2.0

        def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
            scaled = logits / math.exp(theta[0])
            shifted = scaled + theta[1:]
            excess = softmax(shifted, axis=1) - hot
            value = (logsumexp(shifted, axis=1) - (shifted * hot).sum(axis=1)).sum()
            slope = np.array([-(excess * scaled).sum(), *excess.sum(axis=0)])
            return (value + (prior * theta**2).sum() / 2) / n, (slope + prior * theta) / n

        bounds = [LOG_TEMPERATURES, *[(None, None)] * logits.shape[1]]
        start = np.zeros(1 + logits.shape[1])
        theta = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(math.exp(theta[0]), theta[1:].tolist())

    def with_threshold(self, logits: np.ndarray, y: np.ndarray, label_counts: np.ndarray) -> Self:
        """Return a copy with the threshold of the best F1 for logits $[n, 2]$ and labels $[n]$.

        It is in the middle between two probabilities, so that rounding errors of later predictions
        do not matter.
        `label_counts` $[C]$ are the numbers of training nodes of each class. For more than two
        classes, there is no threshold.
        """
        if len(label_counts) != 2:
            return self
        positive = rarer_class(label_counts)
        if not (y == positive).any():
            return replace(self, positive=positive)
        probability = softmax(logits, axis=1)[:, positive]
        order = probability.argsort()
        hits, ordered = (y == positive)[order], np.concatenate([[0.0], probability[order]])
        starts = np.flatnonzero(np.diff(ordered, prepend=-1)[1:] > SAME_PROBABILITY)
        if not starts.size:  # all probabilities are 0, apart from rounding
            return replace(self, positive=positive)
        f1 = 2 * hits[::-1].cumsum()[::-1][starts] / (len(y) - starts + hits.sum())
        best = starts[f1.argmax()]
        return replace(self, positive=positive, threshold=float(ordered[best : best + 2].mean()))

    def apply(self, logits: np.ndarray) -> np.ndarray:
        """Return the corrected logits $[n, C]$."""
        scaled = logits / self.temperature
        return scaled + np.array(self.bias) if self.bias else scaled

    def rarer(self) -> int:
        """Return the index of the rarer of two classes, or raise an error for more classes."""
        if self.positive is None:
            raise InputError(
                "a threshold and the recall of the rarer class need a model with two classes, but "
                "this one has more: leave them out"
            )
        return self.positive

    def threshold_as_number(self, threshold: Threshold, calibrated: bool = False) -> float:
        """Return a threshold of the probabilities, or of the calibrated ones."""
        if threshold != "best":
            if isinstance(threshold, str) or not 0 <= threshold <= 1:
                raise InputError(
                    f"threshold is {threshold!r}: pass a number from 0 to 1, or 'best'"
                )
            return threshold
        best = self.threshold
        if not calibrated or not 0 < best < 1 or self.positive is None:
            return best
        difference = math.log(best / (1 - best)) / self.temperature
        if self.bias:
            difference += self.bias[self.positive] - self.bias[1 - self.positive]
        return 1 / (1 + math.exp(-difference))

    def choose_classes(
        self, probabilities: np.ndarray, threshold: Threshold | None, calibrated: bool = False
    ) -> np.ndarray:
        """Return the class index $[n]$ for probabilities $[n, C]$, which may be `calibrated`."""
        if threshold is None:
            return np.asarray(probabilities.argmax(axis=1))
        positive, limit = self.rarer(), self.threshold_as_number(threshold, calibrated)
        return np.where(probabilities[:, positive] >= limit, positive, 1 - positive)

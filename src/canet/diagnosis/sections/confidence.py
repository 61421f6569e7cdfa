"""Whether confidence can be trusted: calibration, abstention, distance from training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from canet.diagnosis.calibration import (
    Bin,
    calibration_error,
    fit_temperature,
    reliability,
    softmax,
)
from canet.diagnosis.estimate import Estimate, auroc, share
from canet.diagnosis.examination import Examination

COVERAGES = 20  # points of the abstention curve
FAR = 0.95  # of the validation nodes are nearer to training than a node that counts as far
MOSTLY_FAR = 0.5  # of the new nodes
CLEAR_GAP = 0.02  # between confidence and accuracy
FEW_NODES = 50  # that a temperature is fitted on


@dataclass(frozen=True)
class Calibration:
    """How far confidence is from accuracy, on the labelled nodes of one graph."""

    nodes: int  # how many
    accuracy: Estimate  # share that is right
    confidence: float  # mean largest probability
    error: float  # expected calibration error, of 15 bins of equal width
    scaled_error: float  # the same after temperature scaling
    bins: list[Bin]  # the reliability diagram
    scaled_bins: list[Bin]  # the same after temperature scaling
    # Share of the nodes, the most confident ones → their accuracy.
    abstention: dict[float, Estimate]

    @property
    def few(self) -> bool:
        """Whether a temperature fitted on so few nodes says little."""
        return self.nodes < FEW_NODES

    @property
    def overconfident(self) -> bool:
        """Whether mean confidence is clearly higher than accuracy."""
        return self.confidence - self.accuracy.value >= CLEAR_GAP

    @property
    def underconfident(self) -> bool:
        """Whether mean confidence is clearly lower than accuracy."""
        return self.accuracy.value - self.confidence >= CLEAR_GAP


@dataclass(frozen=True)
class Unlike:
    """How unlike training the nodes of a new graph are."""

    # Probability that a new node is further from training than a validation node is.
    auroc: Estimate
    far: Estimate  # share of the new nodes that are further than 95 % of the validation nodes
    # Probability that a wrong new node is further than a right one; None where there are no labels,
    # or all are right or all wrong.
    finds_errors: Estimate | None

    @property
    def mostly_far(self) -> bool:
        """Whether most new nodes are so far away that confidence was never tested there."""
        return self.far.value >= MOSTLY_FAR


@dataclass(frozen=True)
class Confidence:
    """Whether a model's confidence can be trusted."""

    temperature: float  # fitted on the validation nodes; above 1 the model is overconfident
    # Of the validation nodes. Their scaled numbers come from a temperature fitted on the other half
    # of them.
    valid: Calibration
    new: Calibration | None  # of the labelled nodes of the new graph; None without labels
    unlike: Unlike | None  # of the new graph; None without one


def examine(exam: Examination) -> Confidence:
    """Calibration in distribution and, for a new graph with labels, out of it."""
    kept, graph = exam.reference, exam.new
    logits, y = kept.valid_logits.double().numpy(), kept.valid_y.numpy()
    temperature = fit_temperature(logits, y)
    scaled = cross_fitted(logits, y, exam.seed)
    new = None
    if graph is not None and (chosen := graph.scored).any():
        of_new = graph.logits[chosen]
        new = calibration(of_new, graph.y[chosen], softmax(of_new, temperature).max(axis=1))
    return Confidence(temperature, calibration(logits, y, scaled), new, unlike(exam))


def calibration(logits: np.ndarray, y: np.ndarray, scaled: np.ndarray) -> Calibration:
    """Calibration of logits $[n, C]$ for class numbers $[n]$, with scaled confidences $[n]$."""
    plain = softmax(logits).max(axis=1)
    right = logits.argmax(axis=1) == y
    bins, scaled_bins = reliability(plain, right), reliability(scaled, right)
    return Calibration(
        nodes=len(y),
        accuracy=share(right),
        confidence=float(plain.mean()),
        error=calibration_error(bins),
        scaled_error=calibration_error(scaled_bins),
        bins=bins,
        scaled_bins=scaled_bins,
        abstention=abstention(plain, right),
    )


def cross_fitted(logits: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Confidences $[n]$ of each random half at the temperature of the other half."""
    halves = np.array_split(np.random.default_rng(seed).permutation(len(y)), 2)
    confidences = np.empty(len(y))
    for own, other in (halves, halves[::-1]):
        fit = other if other.size else own
        confidences[own] = softmax(logits[own], fit_temperature(logits[fit], y[fit])).max(axis=1)
    return confidences


def abstention(confidence: np.ndarray, right: np.ndarray) -> dict[float, Estimate]:
    """Accuracy on the most confident 5, 10, …, 100 % of the nodes $[n]$."""
    ordered = right[np.argsort(-confidence, kind="stable")]
    parts = [(i, max(1, round(i * len(right) / COVERAGES))) for i in range(1, COVERAGES + 1)]
    return {i / COVERAGES: share(ordered[:size]) for i, size in parts}


def unlike(exam: Examination) -> Unlike | None:
    """How far the nodes of the new graph are from training, compared with validation nodes."""
    kept, graph = exam.reference, exam.new
    if graph is None:
        return None
    valid = kept.novelty_score(kept.valid_embedding).numpy()
    new = kept.novelty_score(torch.from_numpy(graph.embedding)).numpy()
    right, distance = graph.right, new[graph.scored]
    some = bool(right.any() and not right.all())
    return Unlike(
        auroc=auroc(valid, new),
        far=share(new > FAR),
        finds_errors=auroc(distance[right], distance[~right]) if some else None,
    )

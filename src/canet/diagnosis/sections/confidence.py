"""Whether the confidence can be trusted: calibration, abstention, novelty of the new nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import softmax

from canet.diagnosis.context import Context
from canet.scoring.calibration import Calibration
from canet.scoring.intervals import Estimate, auroc, share

NUM_BINS = 15
NUM_COVERAGES = 20  # points of the abstention curve
MIN_NOVELTY = 0.95  # novelty score above which a node counts as novel
CLEAR_GAP = 0.02  # between mean confidence and accuracy
MIN_NODES = 50  # for a reliable temperature


@dataclass(frozen=True)
class Bin:
    """The nodes whose confidence is in one of 15 intervals of equal width."""

    confidence: float  # mean confidence
    accuracy: Estimate
    num_nodes: int


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy on the labelled nodes of one graph."""

    nodes: int  # number of labelled nodes
    accuracy: Estimate
    confidence: float  # mean largest probability
    error: float  # expected calibration error in 15 bins of equal width
    scaled_error: float  # the same after temperature scaling
    bins: list[Bin]  # the reliability_bins diagram
    scaled_bins: list[Bin]  # the same after temperature scaling
    # Share of the nodes that are kept, the most confident first → their accuracy.
    abstention: dict[float, Estimate]

    @property
    def has_few_nodes(self) -> bool:
        """Whether there are too few nodes for a reliable temperature."""
        return self.nodes < MIN_NODES

    @property
    def is_overconfident(self) -> bool:
        """Whether mean confidence is clearly higher than accuracy."""
        gap = self.confidence - self.accuracy.value
        return gap >= CLEAR_GAP and self.confidence > self.accuracy.high

    @property
    def is_underconfident(self) -> bool:
        """Whether mean confidence is clearly lower than accuracy."""
        gap = self.accuracy.value - self.confidence
        return gap >= CLEAR_GAP and self.confidence < self.accuracy.low


@dataclass(frozen=True)
class Novelty:
    """Novelty scores of the nodes of a new graph, compared with validation nodes."""

    auroc: Estimate  # of the novelty score, between validation nodes and new nodes
    novel: Estimate  # share of the new nodes with a novelty score above 0.95
    # AUROC of the novelty score between correct and wrong predictions on the new graph; None
    # without labels, or if all predictions are correct or all are wrong.
    error_auroc: Estimate | None


@dataclass(frozen=True)
class Confidence:
    """Calibration of a model, and novelty of the new graph."""

    temperature: float  # fitted on the validation nodes; above 1 if the model is overconfident
    # On the validation nodes. Each half of them is scaled with the temperature of the other half.
    valid: Reliability
    new: Reliability | None  # on the labelled nodes of the new graph; None without labels
    novelty: Novelty | None  # None without a new graph


def compute(context: Context) -> Confidence:
    """Compute the calibration on validation nodes and, with labels, on the new graph."""
    reference, graph = context.reference, context.new
    logits, y = reference.valid_logits.double().numpy(), reference.valid_y.numpy()
    fitted = Calibration.fit(logits, y)
    scaled = cross_fitted(logits, y, context.seed)
    new = None
    if graph is not None and (chosen := graph.scored).any():
        of_new = graph.logits[chosen]
        new = reliability(of_new, graph.y[chosen], _confidence(fitted.apply(of_new)))
    valid = reliability(logits, y, scaled)
    return Confidence(fitted.temperature, valid, new, novelty(context))


def reliability(logits: np.ndarray, y: np.ndarray, scaled: np.ndarray) -> Reliability:
    """Reliability of logits $[n, C]$ with labels $[n]$ and temperature-scaled confidences $[n]$."""
    plain = _confidence(logits)
    correct = logits.argmax(axis=1) == y
    bins, scaled_bins = reliability_bins(plain, correct), reliability_bins(scaled, correct)
    return Reliability(
        nodes=len(y),
        accuracy=share(correct),
        confidence=float(plain.mean()),
        error=calibration_error(bins),
        scaled_error=calibration_error(scaled_bins),
        bins=bins,
        scaled_bins=scaled_bins,
        abstention=abstention(plain, correct),
    )


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


def cross_fitted(logits: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Confidences $[n]$ of each random half of the nodes at the temperature of the other half."""
    halves = np.array_split(np.random.default_rng(seed).permutation(len(y)), 2)
    confidences = np.empty(len(y))
    for own, other in (halves, halves[::-1]):
        fit = other if other.size else own
        fitted = Calibration.fit(logits[fit], y[fit])
        confidences[own] = _confidence(fitted.apply(logits[own]))
    return confidences


def _confidence(logits: np.ndarray) -> np.ndarray:
    """Largest probability $[n]$ for logits $[n, C]$."""
    return np.asarray(softmax(logits, axis=1).max(axis=1))


def abstention(confidence: np.ndarray, correct: np.ndarray) -> dict[float, Estimate]:
    """Accuracy on the most confident 5, 10, …, 100 % of the nodes $[n]$."""
    ordered = correct[np.argsort(-confidence, kind="stable")]
    parts = [
        (i, max(1, round(i * len(correct) / NUM_COVERAGES))) for i in range(1, NUM_COVERAGES + 1)
    ]
    return {i / NUM_COVERAGES: share(ordered[:size]) for i, size in parts}


def novelty(context: Context) -> Novelty | None:
    """Compare the novelty scores of the new graph with those of the validation nodes."""
    reference, graph = context.reference, context.new
    if graph is None:
        return None
    valid_scores = reference.novelty_score(reference.valid_embedding).numpy()
    scores = reference.novelty_score(torch.from_numpy(graph.embedding)).numpy()
    correct, scored, scores = graph.is_correct, scores[graph.scored], scores[graph.rows]
    has_both = bool(correct.any() and not correct.all())
    return Novelty(
        auroc=auroc(valid_scores, scores),
        novel=share(scores > MIN_NOVELTY),
        error_auroc=auroc(scored[correct], scored[~correct]) if has_both else None,
    )

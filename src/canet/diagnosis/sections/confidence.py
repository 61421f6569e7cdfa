"""Whether the confidence can be trusted: calibration, abstention, novelty of the new nodes."""

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
MIN_NODES = 50  # for a reliable calibration


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
    calibrated_error: float  # the same with calibrated probabilities
    bins: list[Bin]  # the reliability diagram
    calibrated_bins: list[Bin]  # the same with calibrated probabilities
    # Share of the nodes that are kept, the most confident first → their accuracy.
    abstention: dict[float, Estimate]

    @property
    def has_few_nodes(self) -> bool:
        """Whether there are too few nodes for a reliable calibration."""
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

    calibration: Calibration  # that of the model; temperature above 1: it is overconfident
    # On the validation nodes, of which each half is calibrated on the other half.
    valid: Reliability
    new: Reliability | None  # on the labelled nodes of the new graph; None without labels
    novelty: Novelty | None  # None without a new graph


def compute(context: Context) -> Confidence:
    """Compute the reliability on validation nodes and, with labels, on the new graph."""
    reference, graph, calibration = context.reference, context.new, context.model.calibration_
    logits, y = reference.valid_logits.double().numpy(), reference.valid_y.numpy()
    new = None
    if graph is not None and (chosen := graph.scored).any():
        of_new = graph.logits[chosen]
        new = reliability(of_new, graph.y[chosen], calibration.apply(of_new))
    valid = reliability(logits, y, cross_fitted(calibration, logits, y, context.seed))
    return Confidence(calibration, valid, new, novelty(context))


def reliability(logits: np.ndarray, y: np.ndarray, calibrated: np.ndarray) -> Reliability:
    """Reliability of logits $[n, C]$ and of calibrated ones, with labels $[n]$."""
    confidence, correct = _predicted(logits, y)
    bins = reliability_bins(confidence, correct)
    calibrated_bins = reliability_bins(*_predicted(calibrated, y))
    return Reliability(
        nodes=len(y),
        accuracy=share(correct),
        confidence=float(confidence.mean()),
        error=calibration_error(bins),
        calibrated_error=calibration_error(calibrated_bins),
        bins=bins,
        calibrated_bins=calibrated_bins,
        abstention=abstention(confidence, correct),
    )


def _predicted(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Largest probability $[n]$ of each node, and whether it is that of the label $[n]$."""
    return softmax(logits, axis=1).max(axis=1), logits.argmax(axis=1) == y


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


def cross_fitted(
    calibration: Calibration, logits: np.ndarray, y: np.ndarray, seed: int
) -> np.ndarray:
    """Logits $[n, C]$ of each random half of the nodes, calibrated like the other half."""
    halves = np.array_split(np.random.default_rng(seed).permutation(len(y)), 2)
    calibrated = np.empty_like(logits)
    for own, other in (halves, halves[::-1]):
        fit = other if other.size else own
        calibrated[own] = calibration.refit(logits[fit], y[fit]).apply(logits[own])
    return calibrated


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
    correct = (graph.prediction == graph.y)[graph.scored]
    scored, scores = scores[graph.scored], scores[graph.rows]
    has_both = bool(correct.any() and not correct.all())
    return Novelty(
        auroc=auroc(valid_scores, scores),
        novel=share(scores > MIN_NOVELTY),
        error_auroc=auroc(scored[correct], scored[~correct]) if has_both else None,
    )

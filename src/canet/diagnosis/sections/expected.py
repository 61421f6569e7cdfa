"""The accuracy to expect on a graph without labels, from the model's confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import entr

from canet.diagnosis.calibration import fit_temperature, softmax
from canet.diagnosis.estimate import Estimate, percentiles, share
from canet.diagnosis.examination import Examination

RESAMPLES = 200
GRID = 9  # temperatures at which mean confidence is computed


@dataclass(frozen=True)
class ExpectedScore:
    """Accuracy in percent, estimated without labels of the new graph.

    Intervals are for other validation and other new nodes. They do not cover the assumption behind
    all estimates: that confidence means on the new graph what it meant in training.

    Args:
        thresholded: Average thresholded confidence by the largest probability, the main
            estimate.
        thresholded_entropy: The same by the entropy.
        average_confidence: Mean largest probability after temperature scaling.
        difference: Validation accuracy, less the loss of mean confidence.
        valid: Accuracy on the validation nodes.
        actual: Accuracy on the labelled new nodes; None without labels.
        nodes: How many new nodes the estimates are of.
    """

    thresholded: Estimate
    thresholded_entropy: Estimate
    average_confidence: Estimate
    difference: Estimate
    valid: Estimate
    actual: Estimate | None
    nodes: int


def examine(exam: Examination) -> ExpectedScore | None:
    """The accuracy to expect on the new graph; None without one."""
    kept, new = exam.reference, exam.new
    if new is None:
        return None
    valid = kept.valid_logits.double().numpy()
    return expected_score(valid, kept.valid_y.numpy(), new.logits, new.y, exam.seed)


def expected_score(
    valid_logits: np.ndarray,
    valid_y: np.ndarray,
    new_logits: np.ndarray,
    new_y: np.ndarray | None = None,
    seed: int = 0,
) -> ExpectedScore:
    r"""Estimate the accuracy on new nodes from validation nodes and the new nodes' logits.

    - *Average thresholded confidence* (Garg et al., "Leveraging unlabeled data to predict
      out-of-distribution performance", ICLR '22): with a score $s$ of the probabilities, here the
      largest $p_c$ or the negative entropy $\sum_c p_c \log p_c$, the threshold t is such that
      as many validation nodes have $s < t$ as are wrong; the estimate is the share of new
      nodes with $s \ge t$.
    - *Average confidence*: mean largest probability of the new nodes, after the temperature that
      fits validation labels best.
    - *Difference of confidences* (Guillory et al., "Predicting with confidence on unseen
      distributions", ICCV '21): accuracy on validation nodes, less their mean confidence, plus
      that of the new nodes.

    Validation nodes also selected the epoch, so that their accuracy is slightly too good.

    Args:
        valid_logits: $[v, C]$, less any number for each node.
        valid_y: Class numbers $[v]$.
        new_logits: $[n, C]$, as `valid_logits`.
        new_y: Class numbers $[n]$, -1 where there is no label, to compare with.
        seed: Of the bootstrap.
    """
    valid, new = softmax(valid_logits), softmax(new_logits)
    right = valid.argmax(axis=1) == valid_y
    v = len(valid)
    random = np.random.default_rng(seed)
    counts = random.multinomial(v, np.full(v, 1 / v), RESAMPLES)
    by_entropy, by_confidence = (
        _thresholded(score(valid), right, score(new), counts, random)
        for score in (_negative_entropy, _confidence)
    )
    known = np.zeros(len(new), dtype=bool) if new_y is None else new_y >= 0
    return ExpectedScore(
        thresholded=by_confidence,
        thresholded_entropy=by_entropy,
        average_confidence=_averaged(valid_logits, valid_y, new_logits, counts, random),
        difference=_difference(_confidence(valid), right, _confidence(new), counts, random),
        valid=share(right),
        actual=share((new.argmax(axis=1) == new_y)[known]) if known.any() else None,
        nodes=len(new),
    )


def _confidence(probabilities: np.ndarray) -> np.ndarray:
    return np.asarray(probabilities.max(axis=1))


def _negative_entropy(probabilities: np.ndarray) -> np.ndarray:
    return np.asarray(-entr(probabilities).sum(axis=1))


def _thresholded(
    valid: np.ndarray,
    right: np.ndarray,
    new: np.ndarray,
    counts: np.ndarray,
    random: np.random.Generator,
) -> Estimate:
    """Share of new scores $[n]$ from the threshold on that validation scores $[v]$ set.

    A bootstrap's count of new nodes above a threshold is binomial, so that none need be drawn.
    """
    order = np.argsort(valid)
    ordered = np.append(valid[order], np.inf)
    ascending = np.sort(new)

    def above(weight: np.ndarray) -> float:
        below = np.cumsum(weight[order])
        wrong = (weight * ~right).sum()
        threshold = ordered[np.searchsorted(below, wrong, side="right")]
        return 1 - float(np.searchsorted(ascending, threshold)) / len(new)

    parts = np.array([above(weight) for weight in counts])
    drawn = random.binomial(len(new), parts) / len(new)
    return percentiles(100 * above(np.ones(len(valid))), 100 * drawn)


def _averaged(
    valid_logits: np.ndarray,
    valid_y: np.ndarray,
    new_logits: np.ndarray,
    counts: np.ndarray,
    random: np.random.Generator,
) -> Estimate:
    """Mean confidence of new nodes at the temperature of the validation nodes.

    The bootstrap fits each resample's temperature and reads its mean confidence off a curve.
    """
    value = _confidence(softmax(new_logits, fit_temperature(valid_logits, valid_y)))
    fitted = np.array([fit_temperature(valid_logits, valid_y, weight) for weight in counts])
    grid = np.geomspace(fitted.min(), fitted.max(), GRID)
    curve = [_confidence(softmax(new_logits, t)).mean() for t in grid]
    centre = np.interp(fitted, grid, curve)
    drawn = random.normal(centre, value.std() / np.sqrt(len(value)))
    return percentiles(100 * value.mean(), 100 * drawn).within(0, 100)


def _difference(
    valid: np.ndarray,
    right: np.ndarray,
    new: np.ndarray,
    counts: np.ndarray,
    random: np.random.Generator,
) -> Estimate:
    """Accuracy of validation nodes, plus the difference of mean confidences $[n]$ and $[v]$."""
    gap = right - valid
    means = random.normal(new.mean(), new.std() / np.sqrt(len(new)), len(counts))
    drawn = counts @ gap / len(valid) + means
    return percentiles(100 * (gap.mean() + new.mean()), 100 * drawn).within(0, 100)

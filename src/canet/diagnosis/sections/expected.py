"""The score to expect on a graph without labels, from the model's confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import entr
from torch import Tensor

from canet.data.checks import check_metric
from canet.diagnosis.calibration import fit_bias, fit_temperature, rescaled, softmax
from canet.diagnosis.estimate import Estimate, normal, percentiles, share
from canet.diagnosis.examination import Examination
from canet.diagnosis.scoring import score, score_parts

RESAMPLES = 200
FITS = 50  # resamples for metrics other than accuracy, whose calibration takes longer to fit
MUCH_HIGHER = 0.1  # accuracy, between the intervals
GRID = 9  # temperatures at which mean confidence is computed


@dataclass(frozen=True)
class ExchangedClasses:
    """Labels of the new graph that fit the predictions much better when classes change names.

    Args:
        accuracy: With the names as they are.
        exchanged: The same, with each predicted class under the name that fits best.
        names: Predicted class → the label that its nodes mostly have, where these are not the same.
    """

    accuracy: Estimate
    exchanged: Estimate
    names: dict[int, int]


@dataclass(frozen=True)
class ExpectedScore:
    """A metric, estimated without labels of the new graph.

    The intervals of the estimates are for other validation and other new nodes. They do not cover
    the assumption behind each: that confidence means on the new graph what it meant in training.
    How far the estimates disagree shows how much depends on it.

    Args:
        metric: `accuracy`, `roc_auc` or `macro_f1`.
        score: The answer. Its value is `average_confidence`; its interval reaches from the lowest
            to the highest end of the intervals of all estimates.
        between: The smallest and the largest estimate.
        average_confidence: The metric that labels drawn from calibrated probabilities would
            have; for accuracy the mean largest probability after temperature scaling.
        difference: The metric on validation nodes, plus the difference that probabilities, as
            they are, expect between them and the new nodes.
        thresholded: Average thresholded confidence by the largest probability; for accuracy
            alone.
        thresholded_entropy: The same by the entropy.
        valid: The metric on the validation nodes.
        actual: The metric on the labelled new nodes; None where it is undefined.
        nodes: How many new nodes the estimates are of.
        exchanged: Whether classes seem to have other names on the new graph; None: they do not.
    """

    metric: str
    score: Estimate
    between: tuple[float, float]
    average_confidence: Estimate
    difference: Estimate
    thresholded: Estimate | None
    thresholded_entropy: Estimate | None
    valid: Estimate
    actual: Estimate | None
    nodes: int
    exchanged: ExchangedClasses | None = None


def examine(exam: Examination) -> ExpectedScore | None:
    """The score to expect on the new graph; None without one."""
    kept, new = exam.reference, exam.new
    if new is None:
        return None
    valid, y = kept.valid_logits.double().numpy(), kept.valid_y.numpy()
    metric = new.metric if score(new.metric, valid, y) else "accuracy"
    new_y = np.where(new.scored, new.y, -1)
    return expected_score(valid, y, new.logits, new_y, exam.seed, metric=metric)


def expected_score(
    valid_logits: Any,
    valid_y: Any,
    new_logits: Any,
    new_y: Any = None,
    seed: int = 0,
    *,
    metric: str = "accuracy",
) -> ExpectedScore:
    r"""Estimate the score on new nodes from validation nodes and the new nodes' logits.

    - *Average confidence*: mean largest probability of the new nodes, after the temperature that
      fits validation labels best. For another metric: its expectation if the labels of the new
      nodes were drawn from their probabilities, after the temperature and the bias of each class
      that fit validation labels best.
    - *Difference of confidences* (Guillory et al., "Predicting with confidence on unseen
      distributions", ICCV '21): accuracy on validation nodes, less their mean confidence, plus
      that of the new nodes. For another metric with its expectation in place of mean confidence.
    - *Average thresholded confidence* (Garg et al., "Leveraging unlabeled data to predict
      out-of-distribution performance", ICLR '22), for accuracy: with a score $s$ of the
      probabilities, here the largest $p_c$ or the negative entropy $\sum_c p_c \log p_c$, the
      threshold t is such that as many validation nodes have $s < t$ as are wrong; the estimate is
      the share of new nodes with $s \ge t$.

    Validation nodes also selected the epoch, so that their score is slightly too good.

    Args:
        valid_logits: $[v, C]$, less any number for each node; an array or a tensor, as all others.
        valid_y: Class numbers $[v]$.
        new_logits: $[n, C]$, as `valid_logits`.
        new_y: Class numbers $[n]$, -1 where there is no label, to compare with.
        seed: Of the bootstrap.
        metric: `accuracy`, `macro_f1`, or `roc_auc` for two classes.
    """
    valid_logits, new_logits = (_array(part).astype(float) for part in (valid_logits, new_logits))
    valid_y = _array(valid_y)
    new_y = np.full(len(new_logits), -1) if new_y is None else _array(new_y)
    check_metric(metric, valid_logits.shape[1], torch.from_numpy(valid_y))
    valid, new = softmax(valid_logits), softmax(new_logits)
    v, random = len(valid), np.random.default_rng(seed)
    by_entropy, by_confidence = None, None
    if metric == "accuracy":
        right = valid.argmax(axis=1) == valid_y
        counts = random.multinomial(v, np.full(v, 1 / v), RESAMPLES)
        by_entropy, by_confidence = (
            _thresholded(rank(valid), right, rank(new), counts, random)
            for rank in (_negative_entropy, _confidence)
        )
        averaged = _averaged(valid_logits, valid_y, new_logits, counts, random)
    else:
        averaged = _drawn(metric, valid_logits, valid_y, new_logits, random)
    difference = _difference(metric, valid, valid_y, new)
    estimates = [e for e in (averaged, difference, by_confidence, by_entropy) if e]
    values, known = [e.value for e in estimates], new_y >= 0
    low, high = min(e.low for e in estimates), max(e.high for e in estimates)
    on_valid = score(metric, valid_logits, valid_y)
    assert on_valid is not None
    return ExpectedScore(
        metric=metric,
        score=Estimate(averaged.value, low, high),
        between=(min(values), max(values)),
        average_confidence=averaged,
        difference=difference,
        thresholded=by_confidence,
        thresholded_entropy=by_entropy,
        valid=on_valid,
        actual=score(metric, new_logits[known], new_y[known]),
        nodes=len(new),
        exchanged=exchanged_classes(new.argmax(axis=1)[known], new_y[known], new.shape[1]),
    )


def exchanged_classes(
    predicted: np.ndarray, y: np.ndarray, num_classes: int
) -> ExchangedClasses | None:
    """The one-to-one renaming of predicted classes $[n]$ that fits labels $[n]$ best.

    None where it does not raise the accuracy by much, or not beyond what chance does.
    """
    from scipy.optimize import linear_sum_assignment

    inside = y < num_classes
    counts = np.zeros((num_classes, num_classes), dtype=np.int64)
    np.add.at(counts, (predicted[inside], y[inside]), 1)
    best = linear_sum_assignment(counts, maximize=True)[1]
    before, after = share(predicted == y), share(best[predicted] == y)
    if not y.size or after.low - before.high < MUCH_HIGHER:
        return None
    names = {i: int(name) for i, name in enumerate(best) if i != name and counts[i, name]}
    return ExchangedClasses(before, after, names)


def _array(values: Any) -> np.ndarray:
    """A tensor of any device, or anything numpy reads, as an array."""
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


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
    return percentiles(above(np.ones(len(valid))), drawn)


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
    return percentiles(float(value.mean()), drawn).within(0, 1)


def _drawn(
    metric: str,
    valid_logits: np.ndarray,
    valid_y: np.ndarray,
    new_logits: np.ndarray,
    random: np.random.Generator,
) -> Estimate:
    """A metric of new nodes whose labels are drawn from their calibrated probabilities.

    The bootstrap draws validation nodes, fits their calibration, and draws labels.
    """
    v = len(valid_y)
    fitted = fit_bias(valid_logits, valid_y)
    value = score_parts(metric, new_logits, rescaled(new_logits, fitted)).mean()
    drawn = [value]  # labels without one of the classes have no ROC-AUC
    for _ in range(FITS):
        chosen = random.integers(v, size=v)
        theta = fit_bias(valid_logits[chosen], valid_y[chosen], fitted)
        upper = rescaled(new_logits, theta).cumsum(axis=1)[:, :-1]
        y = (random.random((len(upper), 1)) > upper).sum(axis=1)
        drawn.append(score_parts(metric, new_logits, y).mean())
    defined = np.array(drawn)[np.isfinite(drawn)]
    return percentiles(float(value), defined).within(0, 1)


def _difference(metric: str, valid: np.ndarray, valid_y: np.ndarray, new: np.ndarray) -> Estimate:
    """The metric of validation nodes, plus the difference that probabilities $[n, C]$ expect."""
    with np.errstate(divide="ignore"):
        of_valid, of_new = np.log(valid), np.log(new)
    gap = score_parts(metric, of_valid, valid_y) - score_parts(metric, of_valid, valid)
    hoped = score_parts(metric, of_new, new)
    variance = gap.var() / len(gap) + hoped.var() / len(hoped)
    return normal(float(gap.mean() + hoped.mean()), float(variance)).within(0, 1)

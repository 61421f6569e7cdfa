"""Expected score on a graph without labels, estimated from the confidence of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import entr, softmax
from torch import Tensor

from canet.data.checks import check_metric
from canet.data.metrics import METRICS, Metric
from canet.diagnosis.context import Context
from canet.diagnosis.estimate import Estimate, normal, percentiles, score, share
from canet.nn.calibration import Calibration

Values: TypeAlias = ArrayLike | Tensor
NUM_RESAMPLES = 200
NUM_FITS = 50  # resamples for other metrics than accuracy, whose calibration is slow to fit
MIN_GAIN = 0.1  # of accuracy, between the ends of the intervals
NUM_TEMPERATURES = 9  # at which the mean confidence is computed


@dataclass(frozen=True)
class RenamedClasses:
    """A permutation of the class names with a much higher accuracy on the new graph."""

    accuracy: Estimate  # accuracy with the original names
    renamed_accuracy: Estimate  # accuracy with the best permutation of the names
    names: dict[int, int]  # predicted class → its new name, for the classes that are renamed


@dataclass(frozen=True)
class ExpectedScore:
    """A metric on the new graph, estimated without its labels.

    The intervals cover the sampling of validation nodes and new nodes. They do not cover the
    assumption of all estimates: that the confidence is as well calibrated on the new graph as on
    validation nodes. If the estimates disagree, the result depends strongly on this assumption.
    """

    metric: str  # name of the metric
    # The main result. Its value is `average_confidence`; its interval covers the intervals of all
    # estimates.
    score: Estimate
    range: tuple[float, float]  # the smallest and the largest estimate
    # The expected metric if labels are drawn from the calibrated probabilities; for accuracy, the
    # mean confidence after temperature scaling.
    average_confidence: Estimate
    # The metric on validation nodes, plus the change from validation nodes to new nodes that is
    # expected from the probabilities.
    difference: Estimate
    thresholded: Estimate | None  # average thresholded confidence; for accuracy only
    thresholded_entropy: Estimate | None  # the same with the negative entropy as confidence
    valid: Estimate  # the metric on validation nodes
    actual: Estimate | None  # the metric on the labelled new nodes; None if it is undefined
    nodes: int  # number of new nodes
    # A permutation of the class names that fits the labels of the new graph much better; None if
    # there is none.
    renamed: RenamedClasses | None = None


def compute(context: Context) -> ExpectedScore | None:
    """Estimate the score on the new graph; None without one."""
    reference, new = context.reference, context.new
    if new is None:
        return None
    valid, y = reference.valid_logits.double().numpy(), reference.valid_y.numpy()
    metric = new.metric if score(new.metric, valid, y) else METRICS["accuracy"]
    new_y = np.where(new.scored, new.y, -1)
    rows = new.rows
    about = (valid, y, new.logits[rows], new_y[rows], context.seed)
    return expected_score(*about, metric=metric.name, rarer=metric.positive)


def expected_score(
    valid_logits: Values,
    valid_y: Values,
    new_logits: Values,
    new_y: Values | None = None,
    seed: int = 0,
    *,
    metric: str = "accuracy",
    rarer: int | None = None,
) -> ExpectedScore:
    r"""Estimate the score on new nodes from their logits and from labelled validation nodes.

    - *Average confidence*: mean confidence (largest probability) of the new nodes after temperature
      scaling. For another metric: its expected value if the labels of the new nodes are drawn from
      their probabilities, calibrated by a temperature and one bias per class.
    - *Difference of confidences* (Guillory et al., "Predicting with confidence on unseen
      distributions", ICCV '21): accuracy on validation nodes, minus their mean confidence, plus the
      mean confidence of the new nodes. For another metric, its expected value replaces the mean
      confidence.
    - *Average thresholded confidence* (Garg et al., "Leveraging unlabeled data to predict
      out-of-distribution performance", ICLR '22), for accuracy only: for a confidence $s$, here the
      largest $p_c$ or the negative entropy $\sum_c p_c \log p_c$, choose the threshold t such that
      the share of validation nodes with $s < t$ equals their error rate. The estimate is the share
      of new nodes with $s \ge t$.

    The validation nodes were also used to select the epoch, so their score is slightly optimistic.

    Args:
        valid_logits: $[v, C]$, up to a constant per node. All arguments may be arrays or tensors.
        valid_y: Class indices $[v]$.
        new_logits: $[n, C]$, up to a constant per node.
        new_y: Class indices $[n]$, -1 without a label; only used for `actual` and `renamed`.
        seed: Seed of the bootstrap.
        metric: Name of a metric.
        rarer: The rarer of two classes in training, for average precision; None: the second class.
    """
    valid_logits, new_logits = (_array(part).astype(float) for part in (valid_logits, new_logits))
    valid_y = _array(valid_y)
    new_y = np.full(len(new_logits), -1) if new_y is None else _array(new_y)
    check_metric(metric, valid_logits.shape[1], torch.from_numpy(valid_y))
    scorer = METRICS[metric].of_class(rarer)
    valid, new = softmax(valid_logits, axis=1), softmax(new_logits, axis=1)
    v, random = len(valid), np.random.default_rng(seed)
    by_entropy, by_confidence = None, None
    if metric == "accuracy":
        correct = valid.argmax(axis=1) == valid_y
        counts = random.multinomial(v, np.full(v, 1 / v), NUM_RESAMPLES)
        by_entropy, by_confidence = (
            _thresholded(confidence(valid), correct, confidence(new), counts, random)
            for confidence in (lambda p: -entr(p).sum(axis=1), _confidence)
        )
        averaged = _average_confidence(valid_logits, valid_y, new_logits, counts, random)
    else:
        averaged = _expected_metric(scorer, valid_logits, valid_y, new_logits, random)
    difference = _difference(scorer, valid, valid_y, new)
    estimates = [e for e in (averaged, difference, by_confidence, by_entropy) if e]
    values, known = [e.value for e in estimates], new_y >= 0
    low, high = min(e.low for e in estimates), max(e.high for e in estimates)
    on_valid = score(scorer, valid_logits, valid_y)
    assert on_valid is not None
    return ExpectedScore(
        metric=metric,
        score=Estimate(averaged.value, low, high),
        range=(min(values), max(values)),
        average_confidence=averaged,
        difference=difference,
        thresholded=by_confidence,
        thresholded_entropy=by_entropy,
        valid=on_valid,
        actual=score(scorer, new_logits[known], new_y[known]),
        nodes=len(new),
        renamed=find_renamed_classes(new.argmax(axis=1)[known], new_y[known], new.shape[1]),
    )


def find_renamed_classes(
    predicted: np.ndarray, y: np.ndarray, num_classes: int
) -> RenamedClasses | None:
    """Find the permutation of predicted classes $[n]$ that matches the labels $[n]$ best.

    None if the accuracy does not rise by at least 0.1, measured between the confidence intervals,
    or if the mean recall of the classes does not rise too: many false alarms of a rare class are
    not a swap of names.
    """
    from scipy.optimize import linear_sum_assignment

    inside = y < num_classes
    counts = np.zeros((num_classes, num_classes), dtype=np.int64)
    np.add.at(counts, (predicted[inside], y[inside]), 1)
    best = linear_sum_assignment(counts, maximize=True)[1]
    before, after = share(predicted == y), share(best[predicted] == y)
    if not y.size or after.low - before.high < MIN_GAIN:
        return None
    recalls = counts / np.maximum(counts.sum(axis=0), 1)  # [predicted, label]
    own, renamed = np.trace(recalls), recalls[np.arange(num_classes), best].sum()
    if renamed < own + MIN_GAIN * num_classes:
        return None
    names = {i: int(name) for i, name in enumerate(best) if i != name and counts[i, name]}
    return RenamedClasses(before, after, names)


def _array(values: Values) -> np.ndarray:
    """Convert a tensor of any device, or anything array-like, to an array."""
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


def _confidence(probabilities: np.ndarray) -> np.ndarray:
    return np.asarray(probabilities.max(axis=1))


def _thresholded(
    valid: np.ndarray,
    correct: np.ndarray,
    new: np.ndarray,
    counts: np.ndarray,
    random: np.random.Generator,
) -> Estimate:
    """Average thresholded confidence of new nodes $[n]$ and validation nodes $[v]$.

    In the bootstrap, the number of new nodes above the threshold is drawn from its binomial
    distribution, so new nodes are not resampled.
    """
    order = np.argsort(valid)
    ordered = np.append(valid[order], np.inf)
    ascending = np.sort(new)

    def above(weight: np.ndarray) -> float:
        below = np.cumsum(weight[order])
        wrong = (weight * ~correct).sum()
        threshold = ordered[np.searchsorted(below, wrong, side="right")]
        return 1 - float(np.searchsorted(ascending, threshold)) / len(new)

    shares = np.array([above(weight) for weight in counts])
    drawn = random.binomial(len(new), shares) / len(new)
    return percentiles(above(np.ones(len(valid))), drawn)


def _average_confidence(
    valid_logits: np.ndarray,
    valid_y: np.ndarray,
    new_logits: np.ndarray,
    counts: np.ndarray,
    random: np.random.Generator,
) -> Estimate:
    """Mean confidence of the new nodes at the temperature of the validation nodes.

    The bootstrap fits the temperature of each resample, and interpolates the mean confidence at
    this temperature.
    """

    def confidence(calibration: Calibration) -> np.ndarray:
        return _confidence(softmax(calibration.apply(new_logits), axis=1))

    value = confidence(Calibration.fit(valid_logits, valid_y))
    fits = (Calibration.fit(valid_logits, valid_y, weight) for weight in counts)
    fitted = np.array([fit.temperature for fit in fits])
    grid = np.geomspace(fitted.min(), fitted.max(), NUM_TEMPERATURES)
    curve = [confidence(Calibration(t)).mean() for t in grid]
    centre = np.interp(fitted, grid, curve)
    drawn = random.normal(centre, value.std() / np.sqrt(len(value)))
    return percentiles(float(value.mean()), drawn).clip(0, 1)


def _expected_metric(
    metric: Metric,
    valid_logits: np.ndarray,
    valid_y: np.ndarray,
    new_logits: np.ndarray,
    random: np.random.Generator,
) -> Estimate:
    """Expected metric on new nodes if labels are drawn from the calibrated probabilities.

    The bootstrap resamples validation nodes, fits the calibration, and draws labels.
    """
    v, pseudo_values = len(valid_y), metric.pseudo_values
    samples = (random.integers(v, size=v) for _ in range(NUM_FITS))
    fits = Calibration.fit_samples(valid_logits, valid_y, samples)
    value = pseudo_values(new_logits, softmax(next(fits).apply(new_logits), axis=1)).mean()
    drawn = [value]  # ROC-AUC is undefined if a class is not drawn
    for fitted in fits:
        upper = softmax(fitted.apply(new_logits), axis=1).cumsum(axis=1)[:, :-1]
        y = (random.random((len(upper), 1)) > upper).sum(axis=1)
        drawn.append(pseudo_values(new_logits, y).mean())
    defined = np.array(drawn)[np.isfinite(drawn)]
    return percentiles(float(value), defined).clip(0, 1)


def _difference(
    metric: Metric, valid: np.ndarray, valid_y: np.ndarray, new: np.ndarray
) -> Estimate:
    """Metric on validation nodes, plus its expected change from validation nodes to new nodes."""
    with np.errstate(divide="ignore"):
        valid_logits, new_logits = np.log(valid), np.log(new)
    pseudo_values = metric.pseudo_values
    gap = pseudo_values(valid_logits, valid_y) - pseudo_values(valid_logits, valid)
    expected = pseudo_values(new_logits, new)
    variance = gap.var() / len(gap) + expected.var() / len(expected)
    return normal(float(gap.mean() + expected.mean()), float(variance)).clip(0, 1)

"""Expected score on a graph without labels, from the confidence and from held-out parts."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import softmax
from torch import Tensor

from canet.data.checks import check_metric
from canet.diagnosis.context import Context
from canet.models.auto import AVERAGE
from canet.scoring.calibration import Calibration
from canet.scoring.intervals import Estimate, score, share
from canet.scoring.metrics import METRICS

Values: TypeAlias = ArrayLike | Tensor
MIN_GAIN = 0.1  # of accuracy, between the ends of the intervals
MIN_LEAD = 0.02  # over the same answer for every node
Source: TypeAlias = Literal["auto", "held_out", "confidence"]
ERRORS: dict[tuple[str, Source], tuple[float, float, float]] = {
    ("accuracy", "auto"): (-0.217, -0.022, 0.094),
    ("accuracy", "held_out"): (-0.231, 0.002, 0.241),
    ("accuracy", "confidence"): (-0.275, -0.031, 0.269),
    ("average_precision", "auto"): (-0.333, 0.01, 0.314),
    ("average_precision", "held_out"): (-0.257, 0.041, 0.374),
    ("average_precision", "confidence"): (-0.29, 0.036, 0.381),
}
"""Kind of metric, and what the estimate uses (confidence and held-out parts of `auto`, of a single
method, or confidence alone) → low limit, mean and high limit of the error, true minus estimated
score, over the real transfers of `results/diagnosis/transfers.jsonl`: what
`python -m experiments.diagnosis` prints. The limits hold 9 of 10 transfers of a task that was left
out."""
KINDS = {
    "accuracy": "accuracy",
    "roc_auc": "accuracy",
    "average_precision": "average_precision",
    "macro_f1": "average_precision",
}
"""Metric → metric with similar errors. The last two depend on the shares of the classes."""
MAX_LOSS: dict[Source, float] = {"auto": 0.045, "held_out": 0.015, "confidence": 0.015}
"""Largest expected loss with which a model may be used without labels. Of the models of the study
that lost more than 10 points, fewer than 5 % had no larger one."""


@dataclass(frozen=True)
class RenamedClasses:
    """A permutation of the class names with a much higher accuracy on the new graph."""

    accuracy: Estimate  # accuracy with the original names
    renamed_accuracy: Estimate  # accuracy with the best permutation of the names
    names: dict[int, int]  # predicted class → its new name, for the classes that are renamed


@dataclass(frozen=True)
class ExpectedScore:
    """A metric on the new graph, estimated without its labels."""

    metric: str  # name of the metric
    source: Source  # what the estimate uses
    # The mean of `confidence` and `held_out`, or `confidence` alone, less what this estimate is too
    # high on real shifts; at most `validation`.
    value: float
    # low, high: In nine of ten comparable shifts, the true score was between these limits.
    low: float
    high: float
    validation: float  # the metric on validation nodes
    # Mean over held-out parts of the training data, predicted by a model that was trained without
    # them; NaN if unknown.
    held_out: float
    confidence: float  # the metric if labels are drawn from the calibrated probabilities
    # The metric for the same answer everywhere, on new nodes with labels, else on validation nodes.
    baseline: float
    share: float  # assumed share of the class that is rarer in training; NaN with more classes
    nodes: int  # number of new nodes
    actual: Estimate | None  # the metric on the labelled new nodes; None if it is undefined
    # A permutation of the class names that fits the labels of the new graph much better; None if
    # there is none.
    renamed: RenamedClasses | None = None

    @property
    def warns(self) -> bool:
        """Whether the model may lose much of its score.

        Metrics that depend on the shares of the classes are too uncertain to exclude that.
        """
        return self.depends_on_shares or self.validation - self.value > MAX_LOSS[self.source]

    @property
    def is_hardly_better(self) -> bool:
        """Whether the score is hardly better than the same answer for every node."""
        return (self.actual.high if self.actual else self.value) < self.baseline + MIN_LEAD

    @property
    def depends_on_shares(self) -> bool:
        """Whether the metric depends on the shares of the classes, which are not known."""
        return KINDS[self.metric] != "accuracy"


def compute(context: Context) -> ExpectedScore | None:
    """Estimate the score on the new graph; None without one."""
    reference, new = context.reference, context.new
    if new is None:
        return None
    valid, y = reference.valid_logits.double().numpy(), reference.valid_y.numpy()
    metric = new.metric if score(new.metric, valid, y) else METRICS["accuracy"]
    named = {one.name: one.held_out for one in context.model.candidates_}
    held_out = named.get(AVERAGE, math.nan) if context.held_out is None else context.held_out
    rows, new_y = new.rows, np.where(new.scored, new.y, -1)
    return expected_score(
        *(valid, y, new.logits[rows], new_y[rows]),
        held_out=held_out if metric == new.metric else math.nan,
        is_auto=AVERAGE in named and context.held_out is None,
        metric=metric.name,
        rarer=context.model.calibration_.positive,
        calibration=context.model.calibration_,
        largest=int(reference.train_label_counts.argmax()),
    )


def expected_score(
    valid_logits: Values,
    valid_y: Values,
    new_logits: Values,
    new_y: Values | None = None,
    *,
    held_out: float = math.nan,
    is_auto: bool = False,
    metric: str = "accuracy",
    rarer: int | None = None,
    largest: int | None = None,
    calibration: Calibration | None = None,
) -> ExpectedScore:
    """Estimate the score on new nodes from their logits and from labelled nodes of training.

    The confidence of a model expects too much under shift: it is calibrated on validation nodes.
    Held-out parts of the training data are often harder than the new graph. The estimate is the
    mean of both, and at most the score on validation nodes. Its interval is as wide as the errors
    of the same estimate on real shifts whose truth is known.

    Args:
        valid_logits: $[v, C]$, up to a constant per node. All arguments may be arrays or tensors.
        valid_y: Class indices $[v]$.
        new_logits: $[n, C]$, up to a constant per node.
        new_y: Class indices $[n]$, -1 without a label; only used for `actual`, `baseline` and
            `renamed`.
        held_out: Score on held-out parts of the training data; NaN: unknown.
        is_auto: Whether the model is the average of `auto`, whose estimates are better.
        metric: Name of a metric.
        rarer: The rarer of two classes in training, for average precision and `share`; None:
            the second class.
        largest: The largest class in training, for `baseline`; None: in `valid_y`.
        calibration: That of the model; None: it is fitted to the validation nodes, as for a model
            that was selected by this metric, without class weights.
    """
    valid, new = (_array(part).astype(float) for part in (valid_logits, new_logits))
    y = _array(valid_y)
    check_metric(metric, valid.shape[1], torch.from_numpy(y))
    scorer = METRICS[metric].of_class(rarer)
    labels = np.full(len(new), -1) if new_y is None else _array(new_y)
    known, is_known = labels >= 0, not math.isnan(held_out)
    calibration = calibration or Calibration.fit(valid, y, metric, weighted=False)
    probabilities = softmax(calibration.apply(new), axis=1)
    confidence = float(scorer.pseudo_values(new, probabilities).mean())
    before = score(scorer, valid, y)
    assert before is not None
    labelled = new[known], labels[known]
    actual = score(scorer, *labelled)
    source: Source = "auto" if is_known and is_auto else "held_out" if is_known else "confidence"
    low, centre, high = ERRORS[KINDS[metric], source]
    estimate = (confidence + held_out) / 2 if is_known else confidence
    value = float(np.clip(estimate + centre, 0, before.value))
    positive = 1 if rarer is None else rarer
    nodes, truth = labelled if actual else (valid, y)
    answer = np.zeros_like(nodes)
    answer[:, np.bincount(y).argmax() if largest is None else largest] = 1
    return ExpectedScore(
        metric=metric,
        source=source,
        value=value,
        low=float(np.clip(estimate + low, 0, value)),
        high=float(np.clip(estimate + high, value, 1)),
        validation=before.value,
        held_out=held_out,
        confidence=confidence,
        baseline=float(scorer.pseudo_values(answer, truth).mean()),
        share=float(probabilities[:, positive].mean()) if valid.shape[1] == 2 else math.nan,
        nodes=len(new),
        actual=actual,
        renamed=find_renamed_classes(new.argmax(axis=1)[known], labels[known], new.shape[1]),
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

"""Columns that tell less about the label on the new graph than they did in training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from canet.diagnosis.columns import CLEAR_EFFECT, CLEAR_P_VALUE, entries_of
from canet.diagnosis.estimate import auc_variance
from canet.diagnosis.examination import Examination
from canet.diagnosis.graph import Matrix, as_matrix, sample

MAX_NODES = 5000  # of the new graph
MAX_COLUMNS = 1000
MIN_NODES = 10  # of a class, and of all others


@dataclass(frozen=True)
class Relation:
    """How well one column distinguishes one class from all others."""

    column: str
    label: str  # the class whose relation to the column weakened most
    # AUC in training, 0.5 or more by the choice of sign, and on the new graph with the same sign:
    # 0.5 says nothing about the class, less than 0.5 the opposite of what it said in training.
    before: float
    after: float
    p_value: float  # that both are equal, corrected for all columns and classes

    @property
    def weaker(self) -> bool:
        """Whether 2 AUC - 1 is lower by 0.1 or more, which is hardly chance."""
        return 2 * (self.before - self.after) >= CLEAR_EFFECT and self.p_value <= CLEAR_P_VALUE


@dataclass(frozen=True)
class Concept:
    """What columns tell about the label, the relation that weakened most first."""

    relations: list[Relation]  # of each column that was tested
    nodes: tuple[int, int]  # how many were compared, of training and of the new graph

    @property
    def weaker(self) -> list[Relation]:
        """The columns that clearly tell less."""
        return [relation for relation in self.relations if relation.weaker]


def examine(exam: Examination) -> Concept | None:
    """Compare each column's relation to the label; None without enough labels on the new graph.

    The AUC of a column between a class and all others does not change with the rate of the class.
    Of more than 1,000 columns those with the most entries that are not zero are tested.
    """
    if exam.new is None:
        return None
    new, classes = exam.new, exam.model.classes_
    known = np.flatnonzero((new.y >= 0) & (new.y < len(classes)))
    nodes = known[sample(known.size, MAX_NODES, np.random.default_rng(exam.seed))]
    samples = (as_matrix(exam.reference.x), exam.reference.y.numpy()), (new.x[nodes], new.y[nodes])
    sizes = np.stack([np.bincount(y, minlength=len(classes)) for _, y in samples])
    others = sizes.sum(axis=1, keepdims=True) - sizes
    enough = np.flatnonzero((np.minimum(sizes, others) >= MIN_NODES).all(axis=0))
    if len(classes) == 2:
        enough = enough[1:]  # the other class has the same AUC
    if not enough.size:
        return None
    columns = _columns(samples[0][0])
    aucs = np.stack([_aucs(x, columns, y, enough) for x, y in samples])
    return Concept(
        _relations(exam, columns, enough, aucs, sizes), (len(samples[0][1]), len(samples[1][1]))
    )


def _columns(x: Matrix) -> np.ndarray:
    """The numbers of the columns to test, ascending."""
    filled = np.asarray((x != 0).sum(axis=0)).ravel()
    return np.sort(np.argsort(-filled, kind="stable")[:MAX_COLUMNS])


def _aucs(x: Matrix, columns: np.ndarray, y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """AUC $[D, C]$ of each column between each class and all others, by the sum of ranks."""
    inside = np.stack([y == c for c in classes], axis=1).astype(np.float64)
    size, n = inside.sum(axis=0), len(y)
    found = []
    for rows, entries in entries_of(x[:, columns]):
        values = np.append(entries, 0)  # the last stands for all others, which are zero
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        counts[place[-1]] += n - values.size
        rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
        found.append((rank[:-1] - rank[-1]) @ inside[rows] + rank[-1] * size)
    return (np.stack(found) - size * (size + 1) / 2) / (size * (n - size))


def _relations(
    exam: Examination, columns: np.ndarray, classes: np.ndarray, aucs: np.ndarray, sizes: np.ndarray
) -> list[Relation]:
    """Of each column the class whose AUC fell furthest."""
    from scipy.stats import false_discovery_control, norm

    sign = np.where(aucs[0] < 0.5, -1, 1)
    before, after = 0.5 + sign * (aucs - 0.5)
    variance = np.zeros_like(before)
    for auc, counts in zip((before, after), sizes, strict=True):
        for i, c in enumerate(classes):
            of = int(counts[c]), int(counts.sum() - counts[c])
            most = 1 - 0.5 / min(of)  # an AUC of 1 is not certain either
            likely = np.clip(np.maximum(auc[:, i], 1 - auc[:, i]), 0.5, most)
            variance[:, i] += auc_variance(likely, *of)
    z = (before - after) / np.sqrt(variance)
    p_values = false_discovery_control(2 * norm.sf(np.abs(z)), axis=None).reshape(z.shape)
    worst = (before - after).argmax(axis=1)
    found = [
        Relation(
            exam.names[column],
            str(exam.model.classes_[classes[c]]),
            *(float(part[i, c]) for part in (before, after, p_values)),
        )
        for i, (column, c) in enumerate(zip(columns, worst, strict=True))
    ]
    return sorted(found, key=lambda relation: relation.after - relation.before)

"""Columns that predict the label less well on the new graph than in training."""

from dataclasses import dataclass

import numpy as np

from canet.diagnosis.columns import CLEAR_EFFECT, CLEAR_P_VALUE, nonzero_entries
from canet.diagnosis.context import Context
from canet.diagnosis.graph import sample
from canet.scoring.intervals import auc_variance
from canet.util.sparse import Matrix, to_matrix

MAX_NODES = 5000  # of the new graph
MAX_COLUMNS = 1000
MIN_NODES = 10  # of a class, and of all other classes together


@dataclass(frozen=True)
class Relation:
    """How well one column alone separates one class from all others."""

    column: str
    label: str  # the class with the largest loss
    before: float  # AUC in training, at least 0.5 by the choice of the sign
    after: float  # AUC on the new graph with the same sign; below 0.5 the relation is reversed
    p_value: float  # of equal AUCs, corrected for the number of columns and classes

    @property
    def is_weaker(self) -> bool:
        """Whether 2 AUC - 1 fell by at least 0.1, significant at the 5 % level."""
        return 2 * (self.before - self.after) >= CLEAR_EFFECT and self.p_value <= CLEAR_P_VALUE


@dataclass(frozen=True)
class Concept:
    """The relation of each column to the label, the largest loss first."""

    relations: list[Relation]  # one per tested column
    nodes: tuple[int, int]  # number of compared nodes: of training, of the new graph

    @property
    def weaker(self) -> list[Relation]:
        return [relation for relation in self.relations if relation.is_weaker]


def compute(context: Context) -> Concept | None:
    """Compare how well each column predicts the label; None without enough labels.

    The AUC of a column between a class and all others does not depend on the class frequencies. At
    most 1,000 columns are tested, those with the most non-zero entries.
    """
    if context.new is None:
        return None
    new, classes = context.new, context.model.classes_
    known = new.rows[(new.y >= 0)[new.rows] & (new.y < len(classes))[new.rows]]
    nodes = known[sample(known.size, MAX_NODES, np.random.default_rng(context.seed))]
    reference = context.reference
    samples = (to_matrix(reference.x), reference.y.numpy()), (new.x[nodes], new.y[nodes])
    sizes = np.stack([np.bincount(y, minlength=len(classes)) for _, y in samples])
    others = sizes.sum(axis=1, keepdims=True) - sizes
    enough = np.flatnonzero((np.minimum(sizes, others) >= MIN_NODES).all(axis=0))
    if len(classes) == 2:
        enough = enough[1:]  # both classes have the same AUC
    if not enough.size:
        return None
    columns = _columns(samples[0][0])
    aucs = np.stack([_aucs(x, columns, y, enough) for x, y in samples])
    relations = _relations(context, columns, enough, aucs, sizes)
    return Concept(relations, (len(samples[0][1]), len(samples[1][1])))


def _columns(x: Matrix) -> np.ndarray:
    """Numbers of the columns to test, ascending."""
    filled = np.asarray((x != 0).sum(axis=0)).ravel()
    return np.sort(np.argsort(-filled, kind="stable")[:MAX_COLUMNS])


def _aucs(x: Matrix, columns: np.ndarray, y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """AUC $[D, C]$ of each column between each class and all others, from rank sums."""
    inside = np.stack([y == c for c in classes], axis=1).astype(np.float64)
    size, n = inside.sum(axis=0), len(y)
    found = []
    for rows, entries in nonzero_entries(x[:, columns]):
        values = np.append(entries, 0)  # the last entry represents all zeros
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        counts[place[-1]] += n - values.size
        rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
        found.append((rank[:-1] - rank[-1]) @ inside[rows] + rank[-1] * size)
    return (np.stack(found) - size * (size + 1) / 2) / (size * (n - size))


def _relations(
    context: Context, columns: np.ndarray, classes: np.ndarray, aucs: np.ndarray, sizes: np.ndarray
) -> list[Relation]:
    """For each column, the class with the largest loss of AUC."""
    from scipy.stats import false_discovery_control, norm

    sign = np.where(aucs[0] < 0.5, -1, 1)
    before, after = 0.5 + sign * (aucs - 0.5)
    variance = np.zeros_like(before)
    for auc, counts in zip((before, after), sizes, strict=True):
        for i, c in enumerate(classes):
            size = int(counts[c]), int(counts.sum() - counts[c])
            highest = 1 - 0.5 / min(size)  # an AUC of 1 would have no variance
            clipped = np.clip(np.maximum(auc[:, i], 1 - auc[:, i]), 0.5, highest)
            variance[:, i] += auc_variance(clipped, *size)
    z = (before - after) / np.sqrt(variance)
    p_values = false_discovery_control(2 * norm.sf(np.abs(z)), axis=None).reshape(z.shape)
    worst = (before - after).argmax(axis=1)
    found = [
        Relation(
            context.column_names[column],
            str(context.model.classes_[classes[c]]),
            *(float(part[i, c]) for part in (before, after, p_values)),
        )
        for i, (column, c) in enumerate(zip(columns, worst, strict=True))
    ]
    return sorted(found, key=lambda relation: relation.after - relation.before)

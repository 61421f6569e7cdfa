"""The classifier two-sample test: can a classifier distinguish two samples, and how well?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from canet.diagnosis.columns import moments
from canet.diagnosis.estimate import Estimate, auc, auc_variance, normal
from canet.diagnosis.graph import Matrix, sample

MAX_ROWS = 2000  # of each sample
MAX_COLUMNS = 64
FOLDS = 5
MIN_ROWS = 4 * FOLDS
MAX_COPIES = 5  # as many equal rows are one node seen several times; more are values that repeat
DIRECTIONS = 64  # that rows are projected on to find those that are alike
CLEARLY_BELOW = 0.99  # p-value of an AUC that is below one half for another reason than chance


@dataclass(frozen=True)
class TwoSample:
    """How well a classifier distinguishes two samples."""

    # Probability that a row of the second scores higher than one of the first; 0.5 if the samples
    # follow one distribution.
    auc: Estimate
    p_value: float  # of this AUC or more, were they one

    @property
    def effect(self) -> float:
        """2 AUC - 1: 0 where samples are alike, 1 where they are distinguished without error."""
        return max(0.0, 2 * self.auc.value - 1)


def two_sample_test(
    first: Matrix,
    second: Matrix,
    seed: int = 0,
    most: int = MAX_ROWS,
    nodes: np.ndarray | None = None,
) -> TwoSample | None:
    """Cross-validated AUC of gradient-boosted trees between two samples $[n, D]$ and $[m, D]$.

    The classifier two-sample test of Lopez-Paz and Oquab, "Revisiting classifier two-sample
    tests", ICLR '17. At most `most` rows of each are drawn; more than 64 columns are first mapped
    to 64 principal components. The AUC is the mean over five held-out folds; interval and p-value
    are normal, with the variance of Hanley and McNeil for each fold, and that of their mean
    corrected for training sets that overlap (Nadeau and Bengio, "Inference for the generalization
    error", '03). Rows of one node, numbered in `nodes` $[n + m]$ (those of `same_nodes` if None),
    are in one fold: a node is never held out from one sample while it is learned in the other.
    Folds are computed in as many threads as torch uses.

    None where a sample has fewer than twenty rows, or the AUC is clearly below one half: rows of
    the two samples belong together in a way that is not known, and the AUC says nothing.
    """
    from joblib import Parallel, delayed
    from scipy.stats import norm
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    if min(first.shape[0], second.shape[0]) < MIN_ROWS:
        return None
    random = np.random.default_rng(seed)
    rows = [sample(part.shape[0], most, random) for part in (first, second)]
    chosen = [part[some] for part, some in zip((first, second), rows, strict=True)]
    if nodes is None:
        nodes = same_nodes(*chosen)
    else:
        nodes = nodes[np.concatenate([rows[0], first.shape[0] + rows[1]])]
    x, fold = _stacked(*chosen), _folds(nodes, random)
    if sp.issparse(x) and x.shape[1] <= MAX_COLUMNS:
        x = x.toarray()
    y = np.repeat([0, 1], [part.shape[0] for part in chosen])
    both = [i for i in range(FOLDS) if np.unique(y[fold == i]).size == 2]
    controller, threads = ThreadpoolController(), torch.get_num_threads()

    def held_out(i: int) -> float:
        """The AUC on one fold of trees that are fitted on the others."""
        train, test = fold != i, fold == i
        with controller.limit(limits=1, user_api="openmp"):  # of this thread
            trees = _classifier(x, seed).fit(x[train], y[train])
            score = trees.decision_function(x[test])
        return auc(score[y[test] == 0], score[y[test] == 1])

    with controller.limit(limits=1):  # on so few rows more threads wait for each other
        jobs = Parallel(min(FOLDS, threads), prefer="threads")
        aucs = jobs(delayed(held_out)(i) for i in both)
    sizes = [np.bincount(y[fold == i]).tolist() for i in both]
    mean = float(np.mean(aucs))
    dependent = (1 + FOLDS / (FOLDS - 1)) / len(aucs) ** 2
    variance = sum(auc_variance(a, *of) for a, of in zip(aucs, sizes, strict=True))
    estimate = normal(mean, dependent * variance).within(0, 1)
    by_chance = sum(auc_variance(0.5, *of) for of in sizes)
    p_value = float(norm.sf((mean - 0.5) / math.sqrt(dependent * by_chance)))
    return TwoSample(estimate, p_value) if p_value < CLEARLY_BELOW else None


def same_nodes(first: Matrix, second: Matrix) -> np.ndarray:
    """Number $[n + m]$ of the node that each row of two samples is probably of.

    Equal rows are one node, and so are two rows that are each other's nearest. Which sample a row
    is in does not count: if the nearest row of the *other* sample were in its fold, those that are
    left to learn from would be of its own. Distances are in standard deviations of the columns.
    """
    from sklearn.neighbors import NearestNeighbors

    x = _stacked(first, second)
    deviation = moments(x)[1]
    directions = np.random.default_rng(0).normal(size=(x.shape[1], DIRECTIONS))
    points = x @ (directions / np.where(deviation > 0, deviation, 1)[:, None])
    _, place, number = np.unique(points[:, 0].round(6), return_index=True, return_inverse=True)
    if place.size < 3:
        return np.asarray(number)
    different = points[place] - points.mean(axis=0)
    nearest = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(different)
    other = nearest.kneighbors(return_distance=False).ravel()
    itself = np.arange(other.size)
    node = np.where(other[other] == itself, np.minimum(itself, other), itself)
    return np.asarray(node[number])


def _classifier(x: Matrix, seed: int) -> Any:
    """Trees on the columns, or on principal components of many.

    These are found on the rows that trees learn from: a component fits the rows that it was
    found on better than others.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    trees = HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=15, early_stopping=False, random_state=seed
    )
    if x.shape[1] <= MAX_COLUMNS:
        return trees
    scaler = StandardScaler(with_mean=not sp.issparse(x))
    return make_pipeline(scaler, TruncatedSVD(MAX_COLUMNS, random_state=seed), trees)


def _stacked(first: Matrix, second: Matrix) -> Matrix:
    parts = first, second
    return sp.vstack(parts).tocsr() if sp.issparse(first) else np.concatenate(parts)


def _folds(nodes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Number $[n]$ of each row's fold: random, but one for the few rows of a node $[n]$."""
    _, node, sizes = np.unique(nodes, return_inverse=True, return_counts=True)
    alone = random.permutation(nodes.size) % FOLDS
    together = random.permutation(sizes.size) % FOLDS
    return np.where(sizes[node] <= MAX_COPIES, together[node], alone)

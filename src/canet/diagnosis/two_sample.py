"""Classifier two-sample test: how well does a domain classifier separate two samples?"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from canet.diagnosis.columns import moments
from canet.diagnosis.graph import sample
from canet.scoring.intervals import Estimate, auc, auc_variance, normal
from canet.util.sparse import Matrix, stacked

MAX_ROWS = 2000  # per sample
MAX_COLUMNS = 64
FOLDS = 5
MIN_ROWS = 4 * FOLDS
MAX_COPIES = 5  # equal rows that count as one node; if there are more, they are common values
NUM_PROJECTIONS = 64  # random projections in which the nearest rows are searched
MAX_P_VALUE = 0.99  # above it, the AUC is significantly below 0.5 and the test is invalid


@dataclass(frozen=True)
class TwoSample:
    """How well a domain classifier separates two samples."""

    auc: Estimate  # 0.5 if both samples have the same distribution
    p_value: float  # one-sided, for the hypothesis that both have the same distribution

    @property
    def effect(self) -> float:
        """2 AUC - 1: 0 for samples of one distribution, 1 for perfectly separated samples."""
        return max(0.0, 2 * self.auc.value - 1)


def two_sample_test(
    first: Matrix, second: Matrix, nodes: np.ndarray, seed: int = 0
) -> TwoSample | None:
    """Cross-validated AUC of gradient-boosted trees between two samples $[n, D]$ and $[m, D]$.

    The classifier two-sample test of Lopez-Paz and Oquab, "Revisiting classifier two-sample
    tests", ICLR '17. At most 2,000 rows of each sample are used. More than 64 columns are
    first reduced to 64 principal components. The AUC is the mean over five held-out folds. The
    interval and the p-value are normal, with the variance of Hanley and McNeil for each fold and
    the correction of Nadeau and Bengio ("Inference for the generalization error", '03) for
    overlapping training sets.

    A node can be part of both samples. `nodes` $[n + m]$ numbers the nodes of all rows. All rows of
    a node are in the same fold; otherwise the classifier would learn a node in one sample and be
    tested on it in the other. Folds run in as many threads as torch uses.

    None if a sample has fewer than 20 rows, or if the AUC is significantly below 0.5: then rows of
    the two samples depend on each other in an unknown way.
    """
    from joblib import Parallel, delayed
    from scipy.stats import norm
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    if min(first.shape[0], second.shape[0]) < MIN_ROWS:
        return None
    random = np.random.default_rng(seed)
    rows = [sample(part.shape[0], MAX_ROWS, random) for part in (first, second)]
    chosen = [part[ids] for part, ids in zip((first, second), rows, strict=True)]
    nodes = nodes[np.concatenate([rows[0], first.shape[0] + rows[1]])]
    x, fold = stacked(*chosen), _folds(nodes, random)
    if sp.issparse(x) and x.shape[1] <= MAX_COLUMNS:
        x = x.toarray()
    y = np.repeat([0, 1], [part.shape[0] for part in chosen])
    folds = [i for i in range(FOLDS) if np.unique(y[fold == i]).size == 2]
    controller, threads = ThreadpoolController(), torch.get_num_threads()

    def held_out(i: int) -> float:
        """AUC on one fold of trees that are fitted on the other folds."""
        train, test = fold != i, fold == i
        with controller.limit(limits=1, user_api="openmp"):  # per thread
            trees = _classifier(x, seed).fit(x[train], y[train])
            score = trees.decision_function(x[test])
        return auc(score[y[test] == 0], score[y[test] == 1])

    with controller.limit(limits=1):  # with few rows, more threads are slower
        jobs = Parallel(min(FOLDS, threads), prefer="threads")
        aucs = jobs(delayed(held_out)(i) for i in folds)
    sizes = [np.bincount(y[fold == i]).tolist() for i in folds]
    mean = float(np.mean(aucs))
    correction = (1 + FOLDS / (FOLDS - 1)) / len(aucs) ** 2
    variance = sum(auc_variance(a, *size) for a, size in zip(aucs, sizes, strict=True))
    estimate = normal(mean, correction * variance).clip(0, 1)
    null_variance = sum(auc_variance(0.5, *size) for size in sizes)
    p_value = float(norm.sf((mean - 0.5) / math.sqrt(correction * null_variance)))
    return TwoSample(estimate, p_value) if p_value < MAX_P_VALUE else None


def match_nodes(first: Matrix, second: Matrix) -> np.ndarray:
    """Guess which rows of two samples are the same node; returns node numbers $[n + m]$.

    Equal rows are one node, and so are two rows that are nearest neighbours of each other. Both
    rows may be in the same sample: if only pairs across samples were matched, the remaining
    neighbours of a row would all be in its own sample. Distances are in standard deviations of the
    columns.
    """
    from sklearn.neighbors import NearestNeighbors

    x = stacked(first, second)
    deviation = moments(x)[1]
    directions = np.random.default_rng(0).normal(size=(x.shape[1], NUM_PROJECTIONS))
    points = x @ (directions / np.where(deviation > 0, deviation, 1)[:, None])
    _, distinct, number = np.unique(points[:, 0].round(6), return_index=True, return_inverse=True)
    if distinct.size < 3:
        return np.asarray(number)
    centred = points[distinct] - points.mean(axis=0)
    search = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(centred)
    nearest = search.kneighbors(return_distance=False).ravel()
    row = np.arange(nearest.size)
    node = np.where(nearest[nearest] == row, np.minimum(row, nearest), row)
    return np.asarray(node[number])


def _classifier(x: Matrix, seed: int) -> Any:
    """Gradient-boosted trees, after a reduction to principal components if there are many columns.

    They are fitted on the training rows only, because they fit these better than held-out rows.
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


def _folds(nodes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Random fold $[n]$ of each row; the rows of a node $[n]$ share a fold if they are few."""
    _, node, sizes = np.unique(nodes, return_inverse=True, return_counts=True)
    row_fold = random.permutation(nodes.size) % FOLDS
    node_fold = random.permutation(sizes.size) % FOLDS
    return np.where(sizes[node] <= MAX_COPIES, node_fold[node], row_fold)

"""Feature blocks: groups of columns that are replaced together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from canet.diagnosis.columns import moments
from canet.diagnosis.graph import Matrix, as_matrix
from canet.errors import InputError, unknown_name
from canet.estimator.classifier import NodeClassifier

Blocks = dict[str, np.ndarray]
"""Block name → column numbers, ascending."""

MAX_TABLE_BLOCKS = 40  # if a table has more columns, they are grouped like unnamed columns
MAX_SINGLE_COLUMNS = 12  # up to this number, each column is a block
MAX_CORRELATED = 20  # blocks of the columns that correlate most with the predictions
MAX_CLUSTERS = 8  # blocks of the other columns
MIN_CORRELATION = 0.7  # of the columns in a block
MAX_COMPONENTS = 20
MAX_LEAVES = 3000  # columns that Ward's method clusters without k-means before it
OTHERS = "all other columns"


def feature_blocks(model: NodeClassifier, given: Mapping[str, Any] | None = None) -> Blocks:
    """Feature blocks of a model: given, one per column of its input table, or found by clustering.

    `given` maps block names to columns: numbers, a slice, a mask, or names if the columns have
    names. Columns that are in no given block form one more block.
    """
    names = column_names(model)
    if given is not None:
        return _given(given, names)
    encoding = getattr(model, "encoding_", None)
    if encoding is not None and len(encoding.blocks) <= MAX_TABLE_BLOCKS:
        return _given(encoding.blocks, names)
    sample = model.reference()
    source = np.arange(len(names)) if encoding is None else np.array(encoding.sources)
    probabilities = sample.logits.double().softmax(dim=1).numpy()
    return found_blocks(as_matrix(sample.x), names, probabilities, source)


def column_names(model: NodeClassifier) -> list[str]:
    """Names of the feature columns, or their numbers as text if they have no names."""
    names = getattr(model, "feature_names_in_", range(model.n_features_in_))
    return [str(name) for name in names]


def found_blocks(
    x: Matrix, names: Sequence[str], probabilities: np.ndarray, source: np.ndarray
) -> Blocks:
    """Group columns into at most 28 blocks, from features $[n, D]$ and predictions $[n, C]$.

    Up to 12 columns are a block each. If there are more, the first block is the column that
    correlates most with the probability of a class, together with all columns that correlate with
    it by 0.7 or more, and with the columns of the same source $[D]$ (a column of the input table).
    The next block is formed in the same way from the remaining columns, up to 20 blocks. All other
    columns are clustered into at most 8 blocks by Ward's method, on their correlations with the
    first 20 principal components (the sign is ignored). Columns that are mostly zero, such as
    words, are clustered separately. Constant columns are in no block.
    """
    if not sp.issparse(x) and 2 * np.count_nonzero(x) < x.size:
        x = sp.csr_matrix(x)
    scaled, varying = _standardised(x)
    if not varying.size:
        return {OTHERS: np.arange(x.shape[1])}
    if varying.size <= MAX_SINGLE_COLUMNS:
        return {_name(column, names): column for column in varying[:, None]}
    strength = np.abs(_correlation(scaled, probabilities)).max(axis=1)
    remaining = np.ones(varying.size, dtype=bool)
    groups: list[np.ndarray] = []
    while remaining.any() and len(groups) < MAX_CORRELATED:
        strongest = int(np.where(remaining, strength, -1).argmax())
        values = scaled[:, [strongest]]
        values = values.toarray() if sp.issparse(values) else values
        similar = np.abs(_correlation(scaled, values)[:, 0]) >= MIN_CORRELATION
        similar[strongest] = True
        block = remaining & np.isin(source[varying], source[varying][similar & remaining])
        groups.append(varying[block])
        remaining &= ~block
    filled = np.asarray((scaled != 0).mean(axis=0)).ravel() > 0.5
    kinds = [kind for kind in (remaining & filled, remaining & ~filled) if kind.any()]
    for kind in kinds:
        number, max_clusters = np.arange(kind.sum()), MAX_CLUSTERS // len(kinds)
        if number.size > max_clusters:
            number = _ward(_loadings(scaled[:, kind]), max_clusters)
        groups += [varying[kind][number == i] for i in np.unique(number)]
    groups.sort(key=lambda columns: int(columns[0]))
    return {_name(columns, names): columns for columns in groups}


def _correlation(scaled: Matrix, values: np.ndarray) -> np.ndarray:
    """Correlation $[D, k]$ of columns with standard deviation 1 and values $[n, k]$."""
    centred = values - values.mean(axis=0, dtype=np.float64)
    deviation = np.sqrt((centred**2).mean(axis=0))
    return np.asarray(scaled.T @ (centred / np.where(deviation > 0, deviation, 1)) / len(values))


def _standardised(x: Matrix) -> tuple[Matrix, np.ndarray]:
    """Columns that are not constant, divided by their standard deviation, and their numbers."""
    mean, deviation = moments(x)
    varying = np.flatnonzero(deviation > 1e-12 * np.abs(mean))
    if sp.issparse(x):
        return sp.csr_matrix(x[:, varying] @ sp.diags(1 / deviation[varying])), varying
    return x[:, varying] / deviation[varying], varying


def _loadings(scaled: Matrix) -> np.ndarray:
    """Correlation $[D, k]$ of each column with the principal components."""
    from sklearn.decomposition import PCA

    count = min(MAX_COMPONENTS, min(scaled.shape) - 1)
    if count < 1:
        return np.zeros((scaled.shape[1], 1))
    # Single precision is enough for the k-means step before Ward's method.
    precise = sp.issparse(scaled) or scaled.shape[1] <= MAX_LEAVES
    values = scaled.astype(np.float64 if precise else np.float32)
    pca = PCA(count, svd_solver="arpack", random_state=0).fit(values)
    return np.asarray(pca.components_.T * np.sqrt(pca.explained_variance_))


def _ward(rows: np.ndarray, max_clusters: int) -> np.ndarray:
    r"""Cluster number $[D]$ of each row by Ward's method, after k-means if there are many rows.

    A row and its negative have distance 0: $d(a, b)^2 = |a|^2 + |b|^2 - 2 |a \cdot b|$.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from sklearn.cluster import MiniBatchKMeans

    leaf = np.arange(len(rows))
    if len(rows) > MAX_LEAVES:
        means = MiniBatchKMeans(MAX_LEAVES // 3, random_state=0, n_init=1).fit(rows)
        rows, leaf = means.cluster_centers_, means.labels_
    square = (rows**2).sum(axis=1)
    distance = square[:, None] + square[None] - 2 * np.abs(rows @ rows.T)
    tree = linkage(squareform(np.sqrt(np.maximum(distance, 0)), checks=False), "ward")
    return np.asarray(fcluster(tree, max_clusters, "maxclust"))[leaf]


def _given(given: Mapping[str, Any], names: Sequence[str]) -> Blocks:
    """Check the given blocks, and add a block of all other columns."""
    if not given:
        raise InputError(
            "blocks is empty: pass {name: columns}, or None to find the blocks automatically"
        )
    blocks = {str(name): _columns(str(name), given[name], names) for name in given}
    rest = np.setdiff1d(np.arange(len(names)), np.concatenate(list(blocks.values())))
    return blocks | ({OTHERS: rest} if rest.size else {})


def _columns(block: str, columns: Any, names: Sequence[str]) -> np.ndarray:
    every = np.arange(len(names))
    chosen = every[columns] if isinstance(columns, slice) else np.atleast_1d(columns)
    if chosen.dtype.kind in "UO":
        number_of = {name: i for i, name in enumerate(names)}
        for name in chosen:
            if name not in number_of:
                raise InputError(str(unknown_name(f"column of block '{block}'", name, names)))
        chosen = np.array([number_of[name] for name in chosen])
    elif chosen.dtype == bool and chosen.shape == every.shape:
        chosen = every[chosen]
    elif chosen.dtype.kind not in "iu" and chosen.size:
        raise InputError(
            f"block '{block}' has columns of type {chosen.dtype}: pass column numbers, a mask of "
            f"length {len(names)}, a slice or column names"
        )
    chosen = np.unique(chosen).astype(np.int64)
    if not chosen.size or chosen[0] < 0 or chosen[-1] >= len(names):
        found = f"columns {chosen[0]} to {chosen[-1]}" if chosen.size else "no columns"
        raise InputError(
            f"block '{block}' has {found}: pass at least one column from 0 to {len(names) - 1}"
        )
    return chosen


def _name(columns: np.ndarray, names: Sequence[str]) -> str:
    """Block name such as `age, income, ... (5)`, or `columns 7, 9, ... (5)` without names."""
    numbered = all(names[column] == str(column) for column in columns[:3])
    first, last = int(columns[0]), int(columns[-1])
    if numbered and columns.size == last - first + 1:
        return f"column {first}" if first == last else f"columns {first}-{last}"
    text = ", ".join(names[column] for column in columns[: 2 if columns.size > 3 else 3])
    text += f", ... ({columns.size})" if columns.size > 3 else ""
    return f"columns {text}" if numbered else text

"""Feature blocks: the columns that are changed together, given or found."""

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
"""Name of a block → its columns, ascending."""

MOST_BLOCKS = 12
MOST_ENCODED = 40  # columns of a table; more are clustered like columns without names
MOST_COMPONENTS = 20
MOST_LEAVES = 3000  # of the tree of columns
UNRELATED = 2**0.5  # the distance of two columns without correlation
OTHERS = "all other columns"


def feature_blocks(model: NodeClassifier, given: Mapping[str, Any] | None = None) -> Blocks:
    """The blocks of a model's features: given, of its encoding, or found by clustering.

    Given are name → columns: numbers, a slice, a mask, or names where the model knows names.
    Columns that no block has become one of their own.
    """
    names = column_names(model)
    if given is not None:
        return _given(given, names)
    encoding = getattr(model, "encoding_", None)
    if encoding is not None and len(encoding.blocks) <= MOST_ENCODED:
        return _given(encoding.blocks, names)
    return found_blocks(as_matrix(model.reference_.x), names)


def column_names(model: NodeClassifier) -> list[str]:
    """What the columns are called; their numbers, as text, where nobody named them."""
    names = getattr(model, "feature_names_in_", range(model.n_features_in_))
    return [str(name) for name in names]


def found_blocks(x: Matrix, names: Sequence[str]) -> Blocks:
    """At most 12 groups of columns that go together, from sampled features $[n, D]$.

    Columns that are mostly zero, such as words, and those that are not are grouped apart. Ward's
    tree of their correlations with the first 20 principal components, whose sign does not matter,
    is cut into at most 12, and nowhere below the distance of two columns without correlation.
    Constant columns are in no block.
    """
    scaled, varying = _standardised(x)
    if not varying.size:
        return {OTHERS: np.arange(x.shape[1])}
    filled = np.asarray((scaled != 0).mean(axis=0)).ravel() > 0.5
    kinds = [kind for kind in (filled, ~filled) if kind.any()]
    groups = []
    for kind in kinds:
        number, most = np.arange(kind.sum()), MOST_BLOCKS // len(kinds)
        if number.size > most:
            number = _ward(_loadings(scaled[:, kind]), most)
        groups += [varying[kind][number == i] for i in np.unique(number)]
    groups.sort(key=lambda columns: int(columns[0]))
    return {_name(columns, names): columns for columns in groups}


def _standardised(x: Matrix) -> tuple[Matrix, np.ndarray]:
    """The columns that vary, divided by their deviation but not centred, and their numbers."""
    deviation = moments(x)[1]
    largest = abs(x).max(axis=0)
    largest = largest.toarray().ravel() if sp.issparse(x) else largest
    varying = np.flatnonzero(deviation > 1e-12 * largest)
    if sp.issparse(x):
        return sp.csr_matrix(x[:, varying] @ sp.diags(1 / deviation[varying])), varying
    return x[:, varying] / deviation[varying], varying


def _loadings(scaled: Matrix) -> np.ndarray:
    """Correlation $[D, k]$ of each column with the principal components."""
    from sklearn.decomposition import PCA

    count = min(MOST_COMPONENTS, min(scaled.shape) - 1)
    if count < 1:
        return np.zeros((scaled.shape[1], 1))
    pca = PCA(count, svd_solver="arpack", random_state=0).fit(scaled.astype(np.float64))
    return np.asarray(pca.components_.T * np.sqrt(pca.explained_variance_))


def _ward(rows: np.ndarray, most: int) -> np.ndarray:
    r"""Number $[D]$ of each row's cluster; very many rows are first joined by k-means.

    A row and its negative are the same: $d(a, b)^2 = |a|^2 + |b|^2 - 2 |a \cdot b|$.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from sklearn.cluster import MiniBatchKMeans

    leaf = np.arange(len(rows))
    if len(rows) > MOST_LEAVES:
        means = MiniBatchKMeans(MOST_LEAVES // 3, random_state=0, n_init=1).fit(rows)
        rows, leaf = means.cluster_centers_, means.labels_
    square = (rows**2).sum(axis=1)
    distance = square[:, None] + square[None] - 2 * np.abs(rows @ rows.T)
    tree = linkage(squareform(np.sqrt(np.maximum(distance, 0)), checks=False), "ward")
    height = max(UNRELATED, float(tree[-most, 2]))
    return np.asarray(fcluster(tree, height, "distance"))[leaf]


def _given(given: Mapping[str, Any], names: Sequence[str]) -> Blocks:
    """Checked blocks, and one of the columns that are in none."""
    if not given:
        raise InputError("blocks is empty: give name → columns, or nothing to have blocks found")
    blocks = {str(name): _columns(str(name), given[name], names) for name in given}
    rest = np.setdiff1d(np.arange(len(names)), np.concatenate(list(blocks.values())))
    return blocks | ({OTHERS: rest} if rest.size else {})


def _columns(block: str, columns: Any, names: Sequence[str]) -> np.ndarray:
    every = np.arange(len(names))
    chosen = every[columns] if isinstance(columns, slice) else np.atleast_1d(columns)
    if chosen.dtype.kind in "UO":
        place = {name: i for i, name in enumerate(names)}
        for name in chosen:
            if name not in place:
                raise InputError(str(unknown_name(f"column of block '{block}'", name, names)))
        chosen = np.array([place[name] for name in chosen])
    elif chosen.dtype == bool and chosen.shape == every.shape:
        chosen = every[chosen]
    elif chosen.dtype.kind not in "iu" and chosen.size:
        wrong = f"block '{block}' has columns of type {chosen.dtype}"
        raise InputError(f"{wrong}: give numbers, a mask or names")
    chosen = np.unique(chosen).astype(np.int64)
    if not chosen.size or chosen[0] < 0 or chosen[-1] >= len(names):
        found = f"{chosen[0]} to {chosen[-1]}" if chosen.size else "no columns"
        raise InputError(f"block '{block}' has {found}: name at least one of 0 to {len(names) - 1}")
    return chosen


def _name(columns: np.ndarray, names: Sequence[str]) -> str:
    """`age, income, ... (5)`, or of columns without names `columns 7, 9, ... (5)`."""
    numbered = all(names[column] == str(column) for column in columns[:3])
    first, last = int(columns[0]), int(columns[-1])
    if numbered and columns.size == last - first + 1:
        return f"column {first}" if first == last else f"columns {first}-{last}"
    text = ", ".join(names[column] for column in columns[: 2 if columns.size > 3 else 3])
    text += f", ... ({columns.size})" if columns.size > 3 else ""
    return f"columns {text}" if numbered else text

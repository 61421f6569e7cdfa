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

MAX_ENCODED = 40  # columns of a table; more are grouped like columns without names
FEW = 12  # columns without names, which are a block each
MAX_RELATED = 20  # blocks of the columns with the strongest relation to the predictions
MAX_OTHERS = 8  # blocks of all other columns
ALIKE = 0.7  # correlation of two columns that say nearly the same
MAX_COMPONENTS = 20
MAX_LEAVES = 3000  # of the tree of columns
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
    if encoding is not None and len(encoding.blocks) <= MAX_ENCODED:
        return _given(encoding.blocks, names)
    kept = model.reference_
    source = np.arange(len(names)) if encoding is None else np.array(encoding.sources)
    probabilities = kept.logits.double().softmax(dim=1).numpy()
    return found_blocks(as_matrix(kept.x), names, probabilities, source)


def column_names(model: NodeClassifier) -> list[str]:
    """What the columns are called; their numbers, as text, where nobody named them."""
    names = getattr(model, "feature_names_in_", range(model.n_features_in_))
    return [str(name) for name in names]


def found_blocks(
    x: Matrix, names: Sequence[str], probabilities: np.ndarray, source: np.ndarray
) -> Blocks:
    """At most 28 groups of columns, from sampled features $[n, D]$ and predictions $[n, C]$.

    Up to 12 columns are a block each. Of more, the column with the strongest correlation with the
    probability of a class is a block, with those that say nearly the same (a correlation of 0.7 or
    more) and those of the same source $[D]$, a column of a table; so is the strongest of the rest,
    and so on, 20 times. What is left is clustered into at most 8: columns that are mostly zero,
    such as words, and those that are not apart, by Ward's tree of their correlations with the first
    20 principal components, whose sign does not matter. Constant columns are in no block.
    """
    if not sp.issparse(x) and 2 * np.count_nonzero(x) < x.size:
        x = sp.csr_matrix(x)
    scaled, varying = _standardised(x)
    if not varying.size:
        return {OTHERS: np.arange(x.shape[1])}
    if varying.size <= FEW:
        return {_name(column, names): column for column in varying[:, None]}
    strength = np.abs(_correlation(scaled, probabilities)).max(axis=1)
    left = np.ones(varying.size, dtype=bool)
    groups: list[np.ndarray] = []
    while left.any() and len(groups) < MAX_RELATED:
        strongest = int(np.where(left, strength, -1).argmax())
        values = scaled[:, [strongest]]
        values = values.toarray() if sp.issparse(values) else values
        alike = np.abs(_correlation(scaled, values)[:, 0]) >= ALIKE
        alike[strongest] = True
        joined = left & np.isin(source[varying], source[varying][alike & left])
        groups.append(varying[joined])
        left &= ~joined
    filled = np.asarray((scaled != 0).mean(axis=0)).ravel() > 0.5
    kinds = [kind for kind in (left & filled, left & ~filled) if kind.any()]
    for kind in kinds:
        number, most = np.arange(kind.sum()), MAX_OTHERS // len(kinds)
        if number.size > most:
            number = _ward(_loadings(scaled[:, kind]), most)
        groups += [varying[kind][number == i] for i in np.unique(number)]
    groups.sort(key=lambda columns: int(columns[0]))
    return {_name(columns, names): columns for columns in groups}


def _correlation(scaled: Matrix, values: np.ndarray) -> np.ndarray:
    """Correlation $[D, k]$ of columns that have deviation one with values $[n, k]$."""
    centred = values - values.mean(axis=0, dtype=np.float64)
    deviation = np.sqrt((centred**2).mean(axis=0))
    return np.asarray(scaled.T @ (centred / np.where(deviation > 0, deviation, 1)) / len(values))


def _standardised(x: Matrix) -> tuple[Matrix, np.ndarray]:
    """The columns that vary, divided by their deviation but not centred, and their numbers."""
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
    # Very many columns are joined by k-means first, for which single precision is enough.
    precise = sp.issparse(scaled) or scaled.shape[1] <= MAX_LEAVES
    values = scaled.astype(np.float64 if precise else np.float32)
    pca = PCA(count, svd_solver="arpack", random_state=0).fit(values)
    return np.asarray(pca.components_.T * np.sqrt(pca.explained_variance_))


def _ward(rows: np.ndarray, most: int) -> np.ndarray:
    r"""Number $[D]$ of each row's cluster; very many rows are first joined by k-means.

    A row and its negative are the same: $d(a, b)^2 = |a|^2 + |b|^2 - 2 |a \cdot b|$.
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
    return np.asarray(fcluster(tree, most, "maxclust"))[leaf]


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

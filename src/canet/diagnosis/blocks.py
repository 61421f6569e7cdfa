"""Feature blocks: groups of columns that are replaced together."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from canet.diagnosis.columns import moments
from canet.errors import InputError, unknown_name
from canet.estimator.classifier import NodeClassifier
from canet.util.sparse import Matrix, to_matrix

Blocks = dict[str, np.ndarray]  # block name → column numbers, ascending

MAX_TABLE_BLOCKS = 40  # if a table has more columns, they are chosen like unnamed columns
MAX_SINGLE_COLUMNS = 12  # up to this number, each column is a block
MAX_BLOCKS = 20  # of chosen columns
MIN_CORRELATION = 0.7  # of the columns in a block
MIN_SHIFT = 0.1  # of a column, in the product of correlation and shift
OTHERS = "all other columns"


def feature_blocks(
    model: NodeClassifier, given: Mapping[str, Any] | None = None, shifts: np.ndarray | None = None
) -> Blocks:
    """Feature blocks of a model: given, one per column of its input table, or chosen.

    `given` maps block names to columns: numbers, a slice, a mask, or names if the columns have
    names. Columns that are in no given block form one more block. `shifts` $[D]$ are the shifts of
    the columns, if they are known.
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
    return chosen_blocks(to_matrix(sample.x), names, probabilities, source, shifts)


def column_names(model: NodeClassifier) -> list[str]:
    """Names of the feature columns, or their numbers as text if they have no names."""
    names = getattr(model, "feature_names_in_", range(model.n_features_in_))
    return [str(name) for name in names]


def chosen_blocks(
    x: Matrix,
    names: Sequence[str],
    probabilities: np.ndarray,
    source: np.ndarray,
    shifts: np.ndarray | None = None,
) -> Blocks:
    """Choose at most 20 blocks of columns, from features $[n, D]$ and predictions $[n, C]$.

    Up to 12 columns are a block each. If there are more, the first block is the column with the
    largest product of two numbers: its correlation with the probability of a class, and its shift.
    It is joined by the columns that correlate with it by 0.7 or more, and by those of the same
    source $[D]$ (a column of the input table). The next block is formed in the same way from the
    remaining columns. All other columns are the last block. Constant columns are in no block.
    """
    if not sp.issparse(x) and 2 * np.count_nonzero(x) < x.size:
        x = sp.csr_matrix(x)
    scaled, varying = _standardised(x)
    if not varying.size:
        return {OTHERS: np.arange(x.shape[1])}
    if varying.size <= MAX_SINGLE_COLUMNS:
        return {_name(column, names): column for column in varying[:, None]}
    risk = np.abs(_correlation(scaled, probabilities)).max(axis=1)
    if shifts is not None:
        risk = risk * np.maximum(shifts[varying], MIN_SHIFT)
    remaining = np.ones(varying.size, dtype=bool)
    blocks: Blocks = {}
    while remaining.any() and len(blocks) < MAX_BLOCKS:
        first = int(np.where(remaining, risk, -1).argmax())
        values = scaled[:, [first]]
        values = values.toarray() if sp.issparse(values) else values
        similar = np.abs(_correlation(scaled, values)[:, 0]) >= MIN_CORRELATION
        similar[first] = True
        block = remaining & np.isin(source[varying], source[varying][similar & remaining])
        blocks[_name(varying[block], names)] = varying[block]
        remaining &= ~block
    return blocks | ({OTHERS: varying[remaining]} if remaining.any() else {})


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


def _given(given: Mapping[str, Any], names: Sequence[str]) -> Blocks:
    """Check the given blocks, and add a block of all other columns."""
    if not given or not isinstance(given, Mapping):
        raise InputError("blocks must be {name: columns}, or None to find blocks automatically")
    blocks = {str(name): _columns(str(name), given[name], names) for name in given}
    rest = np.setdiff1d(np.arange(len(names)), np.concatenate(list(blocks.values())))
    return blocks | ({OTHERS: rest} if rest.size else {})


def _columns(block: str, columns: ArrayLike | slice, names: Sequence[str]) -> np.ndarray:
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
            f"block '{block}' has {found}: pass numbers of columns from 0 to {len(names) - 1}"
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

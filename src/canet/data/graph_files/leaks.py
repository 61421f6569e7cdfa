"""Columns that give a class away: a single rule about one column tells it from the others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.graph_files.encoding import ColumnEncoding, Encoding
from canet.data.labels import Labels
from canet.errors import listed
from canet.util.sparse import Matrix, to_matrix

ROUNDS = ((1_000, 0.9), (20_000, 0.97))
"""Nodes in a sample, and the balanced accuracy from which a column stays under suspicion."""
MIN_NODES = 10  # of a class, and of all others together
MAX_CLASSES = 100  # the time grows with their number
FEW_VALUES = 12  # so few numbers may be codes of categories
EMPTY = -np.inf  # stands for an empty cell


def leak_notes(
    labels: Labels,
    nodes: np.ndarray,
    read: Callable[[Tensor], Tensor],
    width: int,
    encoding: Encoding | None = None,
) -> list[str]:
    """Return a message for each column of which one rule tells a class from all others.

    The rule is a threshold, a set of categories, or whether the cell is empty. It is found on one
    half of a sample and scored on the other, and the other way round. The sample is drawn from the
    labelled training `nodes`, equally many of each class if there are so many. `read` returns the
    features $[n, D]$ of some nodes; without a table, each of the `width` features is a column.
    """
    group = labels.codes[nodes]
    sizes = np.bincount(group, minlength=len(labels.names))
    tested = np.minimum(sizes, len(nodes) - sizes) >= MIN_NODES
    if np.count_nonzero(sizes) == 2:
        tested[sizes.argmax()] = False  # the rarer one is enough
    if not tested.any() or len(sizes) > MAX_CLASSES:
        return []
    if encoding is None or len(encoding.names) != width:
        encoding = Encoding(tuple(ColumnEncoding(str(i), "number") for i in range(width)))
    order = np.lexsort((np.random.default_rng(0).random(len(nodes)), group))
    place = np.empty_like(order)  # of a node in its class, at random
    place[order] = np.arange(len(nodes)) - np.repeat(sizes.cumsum() - sizes, sizes)
    blocks, suspects = encoding.blocks, encoding.columns
    for size, least in ROUNDS:
        rows = np.flatnonzero(place < size // len(sizes))
        cells, x = (place[rows] % 2, group[rows]), to_matrix(read(torch.from_numpy(nodes[rows])))
        filled = _largest_share(x, group[rows]) >= 2 * least - 1  # else no rule is so good
        x = x.tocsc() if sp.issparse(x) else x
        rules = {
            column.name: _best_rule(x[:, places], column, cells, sizes, tested)
            for column in suspects
            if len(places := blocks[column.name]) > 1 or filled[places[0]]
        }
        suspects = tuple(one for one in suspects if rules.get(one.name, (0,))[0] >= least)
        if not suspects:
            return []
    return [
        f"column '{name}' alone says whether a node is '{labels.names[number]}': it is {rule} "
        f"there and not elsewhere (balanced accuracy {100 * score:.0f} %, rule found on one half "
        "of the training nodes and tested on the other): leave it out, "
        f"without=['{name}'] (--without {name}), unless it is known when you predict"
        for name, (score, number, rule) in ((one.name, rules[one.name]) for one in suspects)
    ]


def _largest_share(x: Matrix, group: np.ndarray) -> np.ndarray:
    """Return for each column $[D]$ in how much of a class it is not 0, for the class with most."""
    weight = 1 / np.bincount(group)[group]
    share = sp.csr_matrix((weight, (group, np.arange(len(group))))) @ (x != 0).astype(np.float32)
    return sp.csr_matrix(share).max(axis=0).toarray().ravel()


def _best_rule(
    x: Matrix,
    column: ColumnEncoding,
    cells: tuple[np.ndarray, np.ndarray],
    sizes: np.ndarray,
    tested: np.ndarray,
) -> tuple[float, int, str]:
    """Return balanced accuracy, class and words of the best rule about features $[n, k]$.

    `cells` are half and class of each node; `sizes` and `tested` are about the classes in training.
    """
    values, code = _values(x, column)
    shape = (2, len(sizes), len(values))
    count = np.bincount(np.ravel_multi_index((*cells, code), shape), minlength=np.prod(shape))
    share = count.reshape(shape) / count.reshape(shape).sum(axis=-1, keepdims=True).clip(1)
    known = share * sizes[:, None]
    others = (known.sum(axis=1, keepdims=True) - known) / (sizes.sum() - sizes)[:, None]
    gap = (share - others) * tested[:, None]  # how much more often a class has a value
    gap = np.concatenate([gap, gap.mean(axis=0, keepdims=True)])  # in each half, and in both
    inside = gap > 0
    if column.kind != "category" and len(values) > FEW_VALUES:
        below = gap.cumsum(axis=-1)
        best = np.abs(below) >= np.abs(below).max(axis=-1, keepdims=True) - 1e-9
        last = len(values) - 1 - best[..., ::-1].argmax(axis=-1, keepdims=True)
        cut = (best.argmax(axis=-1, keepdims=True) + last) // 2  # far from both classes
        inside = (np.arange(len(values)) <= cut) == (np.take_along_axis(below, cut, -1) > 0)
    score = 0.5 + (inside[:2] * gap[1::-1]).sum(axis=-1).mean(axis=0) / 2
    number = int(score.argmax())
    return score[number], number, _in_words(values, inside[2, number], column.kind)


def _values(x: Matrix, column: ColumnEncoding) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values $[m]$ of a column, `EMPTY` first, and their codes $[n]$."""
    row, place = x.nonzero()
    if column.kind == "category":
        code = np.zeros(x.shape[0], dtype=np.int64)
        code[row] = place + 1
        return np.array([EMPTY, *column.categories], dtype=object), code
    numbers = (x[:, [0]].toarray() if sp.issparse(x) else x[:, :1]).ravel().astype(np.float64)
    numbers = column.mean + column.std * numbers
    numbers[row[place == 1]] = EMPTY
    return np.unique(numbers, return_inverse=True)


def _in_words(values: np.ndarray, inside: np.ndarray, kind: str) -> str:
    """Return the rule that a value is one of those in a mask $[m]$, in the units of the table."""

    def text(value: Any) -> str:
        if kind == "date" and value != EMPTY:
            return str(np.datetime64(round(value / 3600), "h")).removesuffix("T00")
        shown = f"'{value}'" if kind == "category" else f"{value:.6g}"
        return "empty" if value == EMPTY else shown

    has_empty, first = bool(values[0] == EMPTY), bool(inside[0])
    if has_empty and (inside[1:] != first).all():
        return "empty" if first else "filled"
    if kind == "category" or np.count_nonzero(np.diff(inside)) > 1:
        return listed(map(text, values[inside]))
    words = ("not before", "before") if kind == "date" else ("at least", "below")
    bound = text(values[np.argmax(inside != first)])
    return "empty or " * (has_empty and first) + f"{words[first]} {bound}"

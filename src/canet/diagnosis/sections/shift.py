"""Shift between the training graph and a new graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch

from canet.diagnosis.columns import (
    CLEAR_EFFECT,
    CLEAR_P_VALUE,
    ColumnShift,
    Distribution,
    column_shifts,
    distribution,
    in_table_units,
    kolmogorov_smirnov,
)
from canet.diagnosis.context import NEW, TRAINING, Context
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.graph import Matrix, as_matrix, sample
from canet.diagnosis.sections.reliance import Effect, replace_columns
from canet.diagnosis.two_sample import match_nodes, two_sample_test
from canet.estimator.reference import homophily, id_checksums

MAX_NODES = 5000  # per graph
MAX_DISTRIBUTIONS = 6
MAX_BLOCK_NODES = 1000  # per graph, in the test of one block
SHIFTED = "shifted columns"
FEATURES, REPRESENTATIONS = "features", "representations"
CLASSIFIER = "domain classifier, 2 AUC - 1"


@dataclass(frozen=True)
class Part:
    """The shift of one part of the graph."""

    name: str  # `features`, `representations`, `degrees`, `labels`, `predictions` or `homophily`
    effect: float  # 0 without shift, 1 for completely different distributions
    measure: str  # definition of the effect
    p_value: float  # Benjamini-Hochberg-corrected for the number of parts; NaN without a test
    # before, after: Mean in training and on the new graph; NaN if not applicable.
    before: float = math.nan
    after: float = math.nan
    auc: Estimate | None = None  # of the domain classifier, if the part was tested with one

    @property
    def has_shifted(self) -> bool:
        """Whether the effect is at least 0.1 and, if tested, significant at the 5 % level."""
        return self.effect >= CLEAR_EFFECT and not self.p_value > CLEAR_P_VALUE


@dataclass(frozen=True)
class BlockShift:
    """The shift of a feature block."""

    name: str
    # 2 AUC - 1 of a domain classifier. For a single column, or if there are too few nodes for the
    # classifier: the largest Kolmogorov-Smirnov distance of a column.
    effect: float
    column: str  # the column with the largest shift

    @property
    def has_shifted(self) -> bool:
        """Whether the effect is at least 0.1."""
        return self.effect >= CLEAR_EFFECT


@dataclass(frozen=True)
class Shift:
    """The shift of all parts, columns and blocks, each sorted by effect."""

    parts: list[Part]
    columns: list[ColumnShift]
    blocks: list[BlockShift]  # the same blocks as in `reliance`
    # Class → share in training, share on the new graph; empty without labels.
    class_rates: dict[str, tuple[float, float]]
    nodes: tuple[int, int]  # number of compared nodes: of training, of the new graph
    # Effect of replacing the shifted columns by values of other nodes on the training graph. It
    # shows the score to expect if these columns no longer carry information. None if no column has
    # shifted or the training graph was not passed.
    without_shifted: Effect | None
    distributions: list[Distribution]  # of the columns with the largest clear shift

    @property
    def shifted_parts(self) -> list[Part]:
        """The parts with a clear shift."""
        return [part for part in self.parts if part.has_shifted]

    @property
    def shifted_columns(self) -> list[ColumnShift]:
        """The columns with a clear shift."""
        return [column for column in self.columns if column.has_shifted]

    @property
    def untested_parts(self) -> list[str]:
        """The parts that the domain classifier could not compare."""
        compared = {part.name for part in self.parts}
        return [name for name in (FEATURES, REPRESENTATIONS) if name not in compared]

    @property
    def score_without_shifted(self) -> Estimate | None:
        """Score on the training graph without the shifted columns; None if not computed."""
        return self.without_shifted.score if self.without_shifted is not None else None


@dataclass(frozen=True)
class Sample:
    """The nodes of one graph that are compared."""

    x: Matrix  # features $[n, D]$
    embedding: np.ndarray  # representations $[m, H]$
    ids: np.ndarray  # checksums $[n]$ of the node ids; empty without ids
    embedding_ids: np.ndarray  # checksums $[m]$ of the node ids; empty without ids
    degree: np.ndarray  # in-degree $[n]$
    label_counts: np.ndarray  # number of labelled nodes of each class $[C]$
    predicted_counts: np.ndarray  # number of predictions of each class $[C]$
    homophily: float  # share of the edges between labelled nodes that join equal labels


def training_sample(context: Context) -> Sample:
    """The sample of the training graph that is stored in the model.

    Features and degrees are those of training nodes. Representations and predictions are those of
    validation nodes, because they differ between training nodes and other nodes even without shift.
    """
    reference = context.reference
    predicted = reference.valid_logits.argmax(dim=1).numpy()
    return Sample(
        x=as_matrix(reference.x),
        embedding=reference.valid_embedding.numpy(),
        ids=reference.node_ids.numpy(),
        embedding_ids=reference.valid_node_ids.numpy(),
        degree=reference.degree.numpy(),
        label_counts=reference.train_label_counts.numpy(),
        predicted_counts=np.bincount(predicted, minlength=len(context.model.classes_)),
        homophily=float(reference.homophily),
    )


def new_sample(context: Context) -> Sample:
    """At most 5,000 nodes of the new graph; counts and homophily are those of all nodes."""
    graph, classes = context.graphs[NEW], len(context.model.classes_)
    rows = graph.rows
    nodes = rows[sample(rows.size, MAX_NODES, np.random.default_rng(context.seed))]
    y = np.minimum(graph.y[rows], classes)  # unseen classes are counted together
    ids = id_checksums(graph.node_id, torch.from_numpy(nodes)).numpy()
    return Sample(
        x=graph.x[nodes],
        embedding=graph.embedding[nodes],
        ids=ids,
        embedding_ids=ids,
        degree=graph.degree[nodes],
        label_counts=np.bincount(y[y >= 0], minlength=classes),
        predicted_counts=np.bincount(graph.prediction[rows], minlength=classes),
        homophily=float(homophily(graph.edge_index, torch.from_numpy(graph.y))),
    )


def compute(context: Context) -> Shift | None:
    """Compare the stored sample of the training graph with the new graph; None without one.

    Columns are compared one by one, and all together by a domain classifier. p-values are corrected
    within the columns and within the parts.
    """
    from scipy.stats import false_discovery_control

    if context.new is None:
        return None
    before, after = training_sample(context), new_sample(context)
    if sp.issparse(before.x) != sp.issparse(after.x):
        before, after = (replace(part, x=sp.csr_matrix(part.x)) for part in (before, after))
    columns = column_shifts(before.x, after.x, context.column_names)
    if context.encoding is not None:
        columns = in_table_units(columns, context.encoding)
    nodes = _node_numbers(before.ids, after.ids, before.x, after.x)
    parts = list(_parts(before, after, nodes, context.seed))
    tested = [part for part in parts if not math.isnan(part.p_value)]
    corrected = false_discovery_control([part.p_value for part in tested])
    final = dict(zip([part.name for part in tested], corrected.tolist(), strict=True))
    parts = [replace(part, p_value=final.get(part.name, math.nan)) for part in parts]
    blocks = []
    for name, numbers in context.blocks.items():
        test, largest = None, max((columns[i] for i in numbers), key=lambda c: c.effect)
        if numbers.size > 1:
            pair = before.x[:, numbers], after.x[:, numbers]
            test = two_sample_test(*pair, context.seed, MAX_BLOCK_NODES, nodes)
        blocks.append(BlockShift(name, (test or largest).effect, largest.name))
    shifted, without_shifted = [column.number for column in columns if column.has_shifted], None
    if shifted and TRAINING in context.graphs:
        without_shifted = replace_columns(
            context.graphs[TRAINING],
            SHIFTED,
            np.array(shifted),
            context.seed,
            context.repeats,
            context.on_pass,
        )
    largest = sorted(columns, key=lambda column: -column.effect)
    distributions = [
        distribution(c, _values(before.x, c.number), _values(after.x, c.number), context.encoding)
        for c in [c for c in largest if c.has_shifted][:MAX_DISTRIBUTIONS]
    ]
    return Shift(
        parts=sorted(parts, key=lambda part: -part.effect),
        columns=largest,
        blocks=sorted(blocks, key=lambda block: -block.effect),
        class_rates=_class_rates(context.model.classes_, before.label_counts, after.label_counts),
        nodes=(before.x.shape[0], after.x.shape[0]),
        without_shifted=without_shifted,
        distributions=distributions,
    )


def _values(x: Matrix, number: int) -> np.ndarray:
    """One column $[n]$ of a dense or sparse matrix $[n, D]$."""
    column = x[:, [number]]
    return np.asarray(column.toarray() if sp.issparse(column) else column, dtype=float).ravel()


def _node_numbers(
    first_ids: np.ndarray, second_ids: np.ndarray, first: Matrix, second: Matrix
) -> np.ndarray:
    """Node numbers $[n + m]$ of all rows: the ids if the samples share ids, else `match_nodes`."""
    if np.intersect1d(first_ids, second_ids).size:
        return np.concatenate([first_ids, second_ids])
    return match_nodes(first, second)


def _parts(before: Sample, after: Sample, nodes: np.ndarray, seed: int) -> Iterator[Part]:
    pair = before.embedding, after.embedding
    embedding_nodes = _node_numbers(before.embedding_ids, after.embedding_ids, *pair)
    for name, first, second, numbers in (
        (FEATURES, before.x, after.x, nodes),
        (REPRESENTATIONS, *pair, embedding_nodes),
    ):
        if test := two_sample_test(first, second, seed, nodes=numbers):
            yield Part(name, test.effect, CLASSIFIER, test.p_value, auc=test.auc)
    effect, p_value = kolmogorov_smirnov(before.degree, after.degree)
    means = float(before.degree.mean()), float(after.degree.mean())
    yield Part("degrees", effect, "Kolmogorov-Smirnov", p_value, *means)
    for name, first, second in (
        ("labels", before.label_counts, after.label_counts),
        ("predictions", before.predicted_counts, after.predicted_counts),
    ):
        if first.sum() and second.sum():
            yield _rates(name, first, second)
    difference = abs(after.homophily - before.homophily)
    if math.isfinite(difference):
        measure = "difference of shares"
        yield Part("homophily", difference, measure, math.nan, before.homophily, after.homophily)


def _rates(name: str, before: np.ndarray, after: np.ndarray) -> Part:
    """Total variation distance of two class distributions, and the chi-squared test."""
    from scipy.stats import chi2_contingency

    size = max(before.size, after.size)
    counts = np.stack([np.pad(c, (0, size - c.size)) for c in (before, after)])
    rates = counts / counts.sum(axis=1, keepdims=True)
    seen = counts[:, counts.sum(axis=0) > 0]
    p_value = float(chi2_contingency(seen).pvalue) if seen.shape[1] > 1 else 1.0
    return Part(name, float(np.abs(rates[0] - rates[1]).sum() / 2), "total variation", p_value)


def _class_rates(
    classes: np.ndarray, before: np.ndarray, after: np.ndarray
) -> dict[str, tuple[float, float]]:
    if not after.sum():
        return {}
    first, second = (counts / max(counts.sum(), 1) for counts in (before, after))
    rates = {str(c): (float(first[i]), float(second[i])) for i, c in enumerate(classes)}
    new = float(second[len(classes) :].sum())
    return rates | ({"other classes": (0.0, new)} if new else {})

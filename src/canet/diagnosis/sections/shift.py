"""Shift between the training graph and a new graph."""

import math
from collections.abc import Iterator, Sequence
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
from canet.diagnosis.context import NEW, Context
from canet.diagnosis.graph import sample
from canet.diagnosis.two_sample import match_nodes, two_sample_test
from canet.estimator.reference import homophily, id_checksums
from canet.scoring.intervals import Estimate
from canet.util.sparse import Matrix, to_matrix

MAX_NODES = 5000  # per graph
MAX_DISTRIBUTIONS = 6
MIN_SHARE, MIN_RISE = 0.02, 0.05  # of a class that vanishes; of a class that becomes more frequent
FEATURES = "features"
CLASSIFIER = "domain classifier, 2 AUC - 1"


@dataclass(frozen=True)
class Part:
    """The shift of one part of the graph."""

    name: str  # `features`, `degrees`, `labels`, `predictions` or `homophily`
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
class ClassShare:
    """How frequent one class is."""

    name: str
    training: float  # share of the training labels
    validation: float  # share of the predictions for validation nodes
    new: float  # share of the predictions for the new graph
    actual: float  # share of the labels of the new graph; NaN without labels

    @property
    def has_vanished(self) -> bool:
        """Whether fewer than a tenth of the earlier predictions are left."""
        return self.validation >= MIN_SHARE and self.new < self.validation / 10

    @property
    def has_doubled(self) -> bool:
        """Whether it is predicted at least twice as often as before, and 5 points more often."""
        before = max(self.training, self.validation)
        return self.new >= max(2 * before, before + MIN_RISE)


@dataclass(frozen=True)
class Shift:
    """The shift of all parts and columns, each sorted by effect."""

    parts: list[Part]
    columns: list[ColumnShift]
    classes: list[ClassShare]
    nodes: tuple[int, int]  # number of compared nodes: of training, of the new graph
    distributions: list[Distribution]  # of the columns with the largest clear shift
    constant: Sequence[str] = ()  # columns that are empty or constant now, but not in training

    @property
    def shifted_columns(self) -> list[ColumnShift]:
        return [column for column in self.columns if column.has_shifted]

    @property
    def changed_classes(self) -> list[ClassShare]:
        """The classes whose share of the predictions has vanished or more than doubled."""
        return [one for one in self.classes if one.has_vanished or one.has_doubled]


@dataclass(frozen=True)
class Sample:
    """The nodes of one graph that are compared."""

    x: Matrix  # features $[n, D]$
    ids: np.ndarray  # checksums $[n]$ of the node ids; empty without ids
    degree: np.ndarray  # in-degree $[n]$
    label_counts: np.ndarray  # number of labelled nodes of each class $[C]$
    predicted_counts: np.ndarray  # number of predictions of each class $[C]$
    homophily: float  # share of the edges between labelled nodes that join equal labels


def training_sample(context: Context) -> Sample:
    """The sample of the training graph that is stored in the model.

    Features and degrees are those of training nodes. Predictions are those of validation nodes,
    because they differ between training nodes and other nodes even without shift.
    """
    reference = context.reference
    predicted = reference.valid_logits.argmax(dim=1).numpy()
    return Sample(
        x=to_matrix(reference.x),
        ids=reference.node_ids.numpy(),
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
    return Sample(
        x=graph.x[nodes],
        ids=id_checksums(graph.node_id, torch.from_numpy(nodes)).numpy(),
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
    columns = column_shifts(before.x, after.x, context.column_names)
    if context.encoding is not None:
        columns = in_table_units(columns, context.encoding)
    share_ids = np.intersect1d(before.ids, after.ids).size > 0
    nodes = np.append(before.ids, after.ids) if share_ids else match_nodes(before.x, after.x)
    parts = list(_parts(before, after, nodes, context.seed))
    tested = [part for part in parts if not math.isnan(part.p_value)]
    corrected = false_discovery_control([part.p_value for part in tested])
    final = dict(zip([part.name for part in tested], corrected.tolist(), strict=True))
    parts = [replace(part, p_value=final.get(part.name, math.nan)) for part in parts]
    largest = sorted(columns, key=lambda column: -column.effect)
    distributions = [
        distribution(c, _values(before.x, c.number), _values(after.x, c.number), context.encoding)
        for c in [c for c in largest if c.has_shifted][:MAX_DISTRIBUTIONS]
    ]
    known = after.label_counts if after.label_counts.sum() else np.full(1, math.nan)
    counts = [before.label_counts, before.predicted_counts, after.predicted_counts, known]
    return Shift(
        parts=sorted(parts, key=lambda part: -part.effect),
        columns=largest,
        classes=class_shares(list(context.model.classes_), counts),
        nodes=(before.x.shape[0], after.x.shape[0]),
        distributions=distributions,
        constant=context.reference.constant_columns(after.x, context.encoding),
    )


def _values(x: Matrix, number: int) -> np.ndarray:
    """One column $[n]$ of a dense or sparse matrix $[n, D]$."""
    column = x[:, [number]]
    return np.asarray(column.toarray() if sp.issparse(column) else column, dtype=float).ravel()


def _parts(before: Sample, after: Sample, nodes: np.ndarray, seed: int) -> Iterator[Part]:
    if test := two_sample_test(before.x, after.x, nodes, seed):
        yield Part(FEATURES, test.effect, CLASSIFIER, test.p_value, auc=test.auc)
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


def class_shares(names: Sequence[object], counts: Sequence[np.ndarray]) -> list[ClassShare]:
    """Shares of classes, from their numbers $[C]$ as in `ClassShare`; unknown classes are one."""
    named = [*map(str, names), *["other classes"] * (max(map(len, counts)) - len(names))]
    rows = [np.pad(one, (0, len(named) - len(one))) for one in counts]
    shares = np.stack([row / max(row.sum(), 1) for row in rows], axis=1).tolist()
    return [ClassShare(name, *own) for name, own in zip(named, shares, strict=True)]

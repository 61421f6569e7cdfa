"""What shifted between the training graph and a new one, the largest effect first."""

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
    Column,
    column_shifts,
    in_own_units,
    kolmogorov_smirnov,
)
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.examination import NEW, TRAINING, Examination
from canet.diagnosis.graph import Matrix, as_matrix, sample
from canet.diagnosis.sections.reliance import Effect, exchanged
from canet.diagnosis.two_sample import same_nodes, two_sample_test
from canet.estimator.reference import homophily, id_checksums

MAX_NODES = 5000  # that are compared, of each graph
MAX_OF_BLOCKS = 1000  # nodes, for the test of one block
SHIFTED = "columns that shifted"
FEATURES, REPRESENTATIONS = "features", "representations"


@dataclass(frozen=True)
class Part:
    """How far one part of the graph shifted."""

    name: str  # `features`, `representations`, `degrees`, `labels`, `predictions` or `homophily`
    # 0 where nothing shifted, 1 where nothing is as before: 2 AUC - 1 of a classifier two-sample
    # test, Kolmogorov-Smirnov distance, total variation, or difference of shares.
    effect: float
    measure: str  # which of these
    # Corrected for the number of parts (Benjamini-Hochberg); NaN where no test is made.
    p_value: float
    # before, after: What is compared, in a number; NaN where there is none.
    before: float = math.nan
    after: float = math.nan
    auc: Estimate | None = None  # of the two-sample test, where one was made

    @property
    def shifted(self) -> bool:
        """Whether the effect is 0.1 or more, and hardly chance where that was tested."""
        return self.effect >= CLEAR_EFFECT and not self.p_value > CLEAR_P_VALUE


@dataclass(frozen=True)
class BlockShift:
    """How far a feature block shifted."""

    name: str  # of the block
    # 2 AUC - 1 of a classifier two-sample test; of one column, or where there are too few nodes for
    # the test, the largest Kolmogorov-Smirnov distance.
    effect: float
    column: str  # its column that shifted most

    @property
    def shifted(self) -> bool:
        """Whether the effect is 0.1 or more."""
        return self.effect >= CLEAR_EFFECT


@dataclass(frozen=True)
class Shift:
    """What shifted, the largest effect first."""

    parts: list[Part]  # of the graph
    columns: list[Column]  # of the features, all of them
    blocks: list[BlockShift]  # of the features, the same as in reliance
    # Class → share in training, share in the new graph; empty without labels.
    class_rates: dict[str, tuple[float, float]]
    nodes: tuple[int, int]  # how many were compared, of training and of the new graph
    # What drawing the columns that shifted from other nodes does on the training graph: what to
    # expect if they carry no information any more. None unless both graphs were given and some
    # column shifted.
    stressed: Effect | None

    @property
    def shifted_parts(self) -> list[Part]:
        """The parts that clearly shifted."""
        return [part for part in self.parts if part.shifted]

    @property
    def shifted_columns(self) -> list[Column]:
        """The columns that clearly shifted."""
        return [column for column in self.columns if column.shifted]

    @property
    def undecided(self) -> list[str]:
        """The parts that no two-sample test could compare."""
        compared = {part.name for part in self.parts}
        return [name for name in (FEATURES, REPRESENTATIONS) if name not in compared]

    @property
    def score_left(self) -> Estimate | None:
        """The score in training without what shifted; None where that was not tried."""
        return self.stressed.score if self.stressed is not None else None


@dataclass(frozen=True)
class Sample:
    """What shift compares: features $[n, D]$, embeddings $[m, H]$, checksums of the ids of these
    nodes (empty where there are no ids), degrees $[n]$, the number of labelled nodes of each class
    $[C]$ and of each predicted one, and the share of edges between labelled nodes that join equal
    labels.
    """

    x: Matrix
    embedding: np.ndarray
    ids: np.ndarray
    embedding_ids: np.ndarray
    degree: np.ndarray
    label_counts: np.ndarray
    predicted_counts: np.ndarray
    homophily: float


def training_sample(exam: Examination) -> Sample:
    """What the model keeps of its training graph.

    Features and degrees are of training nodes. Representations and predictions are of validation
    nodes, as those of nodes that were trained on differ from others even where nothing shifted.
    """
    kept = exam.reference
    predicted = kept.valid_logits.argmax(dim=1).numpy()
    return Sample(
        x=as_matrix(kept.x),
        embedding=kept.valid_embedding.numpy(),
        ids=kept.node_ids.numpy(),
        embedding_ids=kept.valid_node_ids.numpy(),
        degree=kept.degree.numpy(),
        label_counts=kept.train_label_counts.numpy(),
        predicted_counts=np.bincount(predicted, minlength=len(exam.model.classes_)),
        homophily=float(kept.homophily),
    )


def new_sample(exam: Examination) -> Sample:
    """The same of the new graph, at most 5,000 nodes; counts and homophily are of all nodes."""
    graph, classes = exam.graphs[NEW], len(exam.model.classes_)
    nodes = sample(graph.num_nodes, MAX_NODES, np.random.default_rng(exam.seed))
    ids = id_checksums(graph.node_id, torch.from_numpy(nodes)).numpy()
    return Sample(
        x=graph.x[nodes],
        embedding=graph.embedding[nodes],
        ids=ids,
        embedding_ids=ids,
        degree=graph.degree[nodes],
        label_counts=np.bincount(graph.y[graph.y >= 0], minlength=classes),
        predicted_counts=np.bincount(graph.prediction, minlength=classes),
        homophily=float(homophily(graph.edge_index, torch.from_numpy(graph.y))),
    )


def examine(exam: Examination) -> Shift | None:
    """Compare the training graph, as far as the model keeps it, with the new one.

    Columns are compared one by one and all together, by a classifier that tries to distinguish
    the nodes of the two graphs. p-values are corrected within the columns and within the parts.
    """
    from scipy.stats import false_discovery_control

    if exam.new is None:
        return None
    before, after = training_sample(exam), new_sample(exam)
    if sp.issparse(before.x) != sp.issparse(after.x):
        before, after = (replace(part, x=sp.csr_matrix(part.x)) for part in (before, after))
    columns = column_shifts(before.x, after.x, exam.names)
    if exam.encoding is not None:
        columns = in_own_units(columns, exam.encoding)
    nodes = _nodes(before.ids, after.ids, before.x, after.x)
    parts = list(_parts(before, after, nodes, exam.seed))
    tested = [part for part in parts if not math.isnan(part.p_value)]
    corrected = false_discovery_control([part.p_value for part in tested])
    final = dict(zip([part.name for part in tested], corrected.tolist(), strict=True))
    parts = [replace(part, p_value=final.get(part.name, math.nan)) for part in parts]
    blocks = []
    for name, numbers in exam.blocks.items():
        found, furthest = None, max((columns[i] for i in numbers), key=lambda c: c.effect)
        if numbers.size > 1:
            pair = before.x[:, numbers], after.x[:, numbers]
            found = two_sample_test(*pair, exam.seed, MAX_OF_BLOCKS, nodes)
        blocks.append(BlockShift(name, (found or furthest).effect, furthest.name))
    shifted, stressed = [column.number for column in columns if column.shifted], None
    if shifted and TRAINING in exam.graphs:
        stressed = exchanged(
            exam.graphs[TRAINING], SHIFTED, np.array(shifted), exam.seed, exam.repeats, exam.tick
        )
    return Shift(
        parts=sorted(parts, key=lambda part: -part.effect),
        columns=sorted(columns, key=lambda column: -column.effect),
        blocks=sorted(blocks, key=lambda block: -block.effect),
        class_rates=_class_rates(exam.model.classes_, before.label_counts, after.label_counts),
        nodes=(before.x.shape[0], after.x.shape[0]),
        stressed=stressed,
    )


def _nodes(
    first_ids: np.ndarray, second_ids: np.ndarray, first: Matrix, second: Matrix
) -> np.ndarray:
    """Number $[n + m]$ of the node of each row: its id where the samples share ids, else found."""
    if np.intersect1d(first_ids, second_ids).size:
        return np.concatenate([first_ids, second_ids])
    return same_nodes(first, second)


def _parts(before: Sample, after: Sample, nodes: np.ndarray, seed: int) -> Iterator[Part]:
    pair = before.embedding, after.embedding
    others = _nodes(before.embedding_ids, after.embedding_ids, *pair)
    for name, first, second, of in (
        (FEATURES, before.x, after.x, nodes),
        (REPRESENTATIONS, *pair, others),
    ):
        if found := two_sample_test(first, second, seed, nodes=of):
            yield Part(name, found.effect, "2 AUC - 1", found.p_value, auc=found.auc)
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
    """Total variation of two class distributions, and the chi-squared test that they are one."""
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

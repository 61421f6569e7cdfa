"""A graph that is read, normalised and predicted once for all sections of a diagnosis."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.checks import check_times
from canet.data.graph import match_classes
from canet.data.labels import check_labels
from canet.data.raw_graph import GraphLike, NodeSet
from canet.data.task import sample_nodes
from canet.diagnosis.columns import nonzero_entries
from canet.diagnosis.perturb import draw_donors
from canet.errors import InputError
from canet.estimator.classifier import NodeClassifier
from canet.estimator.plan import fits_in_memory
from canet.estimator.reference import Reference, id_checksums
from canet.models import Fitted
from canet.models.replacing import Replacing
from canet.reading.prepared import PreparedGraph
from canet.reading.sampled import MAX_NODES, sampled_part
from canet.scoring.intervals import Estimate, score
from canet.scoring.metrics import METRICS, Metric
from canet.util.sparse import Matrix, components, to_matrix

MIN_PAIRS = 10_000  # of nodes, whose order is compared
MIN_EQUAL = 10  # rows of features without which equal ones may be chance


def seed_of(model: NodeClassifier) -> int:
    """The seed of all random draws: `random_state` of the model, or 0 if it is not an integer."""
    return int(model.random_state) if isinstance(model.random_state, int | np.integer) else 0


@dataclass(frozen=True)
class DiagnosedGraph:
    """A graph with the predictions of the model."""

    fitted: Fitted  # the model
    prepared: PreparedGraph  # the graph as the model reads it
    x: Matrix  # features $[N, D]$
    edge_index: Tensor  # edges $[2, E]$ (source, target) that the model uses
    edge_weight: Tensor | None  # their weights $[E]$
    undirected: bool  # whether the model uses each edge in both directions
    # Index $[N]$ of the label in `classes_` of the model; -1 without a label, C and more for unseen
    # classes.
    y: np.ndarray
    # Graph number $[N]$ of each node: `batch` if given, else the connected component.
    graph: np.ndarray
    # Environment number $[N]$ of each node, -1 if unknown; None without environments.
    environment: np.ndarray | None
    time: np.ndarray | None  # time $[N]$ of each node
    node_id: np.ndarray  # ids $[N]$ of the nodes in the user's data
    probabilities: np.ndarray  # predicted $[N, C]$
    metric: Metric  # metric of the model
    embedding: np.ndarray  # representations $[N, H]$
    # Posteriors $[N, K]$ of the pseudo-environments of each layer; empty if there are none.
    posteriors: list[np.ndarray]
    # Rows $[n]$ of the nodes to diagnose: validation nodes of the training graph, else all.
    rows: np.ndarray
    size: tuple[int, int]  # number of nodes and edges; of the whole graph, if this is a part of it
    donors: Tensor | None = None  # features $[d, D]$ that replace others; None: those of the nodes

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])

    @cached_property
    def scored(self) -> np.ndarray:
        """Mask $[N]$ of the nodes to diagnose that are labelled.

        Ranking metrics are defined for two classes, so nodes of a third class are not scored.
        """
        ranks = self.metric.ranks
        third = self.y >= self.probabilities.shape[1] if ranks else False
        chosen = np.zeros(self.num_nodes, dtype=bool)
        chosen[self.rows] = True
        return chosen & (self.y >= 0) & ~np.asarray(third)

    @cached_property
    def score(self) -> Estimate | None:
        """The metric on the scored nodes; None if it is undefined."""
        return score(self.metric, self.logits[self.scored], self.y[self.scored])

    def pseudo_values(self, logits: np.ndarray) -> np.ndarray:
        """Pseudo-values of the metric on the scored nodes, for logits of the nodes to diagnose."""
        scored = self.scored[self.rows]
        return self.metric.pseudo_values(logits[scored], self.y[self.rows][scored])

    def changes(self, logits: np.ndarray) -> np.ndarray:
        """Mask of the predictions that change with other logits $[n, C]$ of the diagnosed nodes.

        They are classes $[n]$ or, for a metric that ranks, the order of the nodes in `pairs`.
        """
        own = self.logits[self.rows]
        if not self.metric.ranks:
            return np.asarray(logits.argmax(axis=1) != own.argmax(axis=1))
        margins = (one[:, 1] - one[:, 0] for one in (own, logits))
        before, after = (np.sign(np.subtract(*margin[self.pairs])) for margin in margins)
        return np.asarray(before != after)

    @cached_property
    def pairs(self) -> np.ndarray:
        """Pairs $[2, m]$ of diagnosed nodes whose order matters for a ranking.

        The first is drawn by its probability of the positive class: the order of two nodes that
        hardly have this class does not matter.
        """
        share = self.probabilities[self.rows, self.metric.positive]
        random, size = np.random.default_rng(0), max(MIN_PAIRS, share.size)
        first = random.choice(share.size, size, p=share / share.sum())
        return np.stack([first, random.integers(share.size, size=size)])

    @cached_property
    def degree(self) -> np.ndarray:
        """In-degree $[N]$ of each node."""
        return self.prepared.degree().numpy()

    @cached_property
    def prediction(self) -> np.ndarray:
        """Most likely class $[N]$ of each node."""
        return np.asarray(self.probabilities.argmax(axis=1))

    @cached_property
    def logits(self) -> np.ndarray:
        """Log probabilities $[N, C]$, which are the logits up to a constant per node."""
        return np.log(np.maximum(self.probabilities, np.finfo(np.float64).tiny))

    def draw_donors(self, random: np.random.Generator) -> np.ndarray:
        """Draw for each node the node whose values it gets, for `replacing`."""
        if self.donors is None:
            return draw_donors(self.num_nodes, random, self.environment)
        own = self.num_nodes + np.arange(len(self.donors))  # the donors keep their values
        return np.append(random.choice(own, self.num_nodes), own)

    def replacing(self, columns: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function: drawn donors → logits $[n, C]$ with these columns of the donors."""
        change = self._replacing(columns)
        return lambda donors: change(donors).double().numpy()

    @cached_property
    def _replacing(self) -> Replacing:
        own, donors = self.prepared, self.donors
        graph = own if donors is None else own.with_nodes(donors)
        return self.fitted.replacing(graph, torch.from_numpy(self.rows))

    def predict_edges(self, edge_index: Tensor, edge_weight: Tensor | None = None) -> np.ndarray:
        """Logits $[n, C]$ with other edges $[2, E]$ and weights $[E]$."""
        other = self.prepared.with_edges(edge_index, edge_weight, torch.from_numpy(self.graph))
        found = self.fitted.read(other, torch.from_numpy(self.rows))
        return np.asarray(found.logits.double().numpy())


def read_graph(
    model: NodeClassifier, given: GraphLike, trained_on: bool = False, nodes: NodeSet | None = None
) -> DiagnosedGraph:
    """Check a graph as `predict` does, and predict it.

    `nodes` are those to diagnose. By default these are the validation nodes that the model knows if
    it was trained on the graph, and else all nodes. `y`, `environment`, `time`, `batch` and
    `node_id` of the graph are used if they exist.
    """
    data = model.open_graph(given, in_memory=False)
    reader = model.prepare(data)
    if reader.data.is_on_disk and fits_in_memory(reader.data):
        data = model.open_graph(data)
        reader = model.prepare(data)
    whole, n = reader.data, reader.data.num_nodes
    time, rows = None, torch.arange(n)
    if nodes is not None:
        rows = whole.rows(nodes).unique()
    elif trained_on:
        known = model.reference().valid_nodes
        rows = known[known < n] if (known < n).any() else rows
    if not rows.numel():
        raise InputError("nodes is empty: pass at least one node")
    environment, node_id = data.get("environment"), data.get("node_id")
    if environment is not None:
        environment = check_labels(environment, n, "environment").codes
    if data.get("time") is not None:
        with suppress(InputError):  # a node without a valid time; times are only compared
            time = check_times(data.time, n)
    y = match_classes(data.get("y"), n, model.classes_).numpy()
    node_id = np.arange(n) if node_id is None else np.asarray(node_id)
    fitted, prepared = reader.model, reader.graph
    if prepared.in_pieces:
        rows, typical = (sample_nodes(ids, MAX_NODES) for ids in (rows, torch.arange(n)))
        prepared, ids = sampled_part(prepared, rows, typical, fitted.num_hops)
        rows, at = torch.searchsorted(ids, rows.sort().values), ids.numpy()
        y, node_id = y[at], node_id[at]
        environment, time = (None if one is None else one[at] for one in (environment, time))
    own = prepared.data
    graph = own.batch
    assert own.edge_index is not None
    if graph is None:
        graph = components(own.edge_index, n, own.edge_weight)
    found, x = replace(reader, graph=prepared).read(), to_matrix(own.x)
    return DiagnosedGraph(
        fitted=fitted,
        prepared=prepared,
        x=x,
        edge_index=own.edge_index,
        edge_weight=own.edge_weight,
        undirected=model.both_ways_ and whole is own,
        y=y,
        graph=graph.numpy().astype(np.int64),
        environment=environment,
        time=time,
        node_id=node_id,
        probabilities=found.logits.double().softmax(dim=1).numpy(),
        metric=METRICS[model.metric].of_class(model.calibration_.positive),
        embedding=found.representation.numpy(),
        posteriors=[e.log_posterior.exp().cpu().double().numpy() for e in found.environments],
        rows=rows.numpy(),
        size=(n, whole.num_edges),
    )


def seen_in_training(graph: DiagnosedGraph, reference: Reference) -> np.ndarray:
    """Mask $[N]$ of the nodes that have the id and the features of a sampled training node.

    If most nodes with the id of a training node have other features, the graphs are different ones
    with the same ids, and equal features are chance. Then, and without ids, nodes are compared by
    features that no other node has: at most $1/e$ of these are in two samples by chance.
    """
    seen = np.zeros(graph.num_nodes, dtype=bool)
    ids = id_checksums(graph.node_id, torch.arange(graph.num_nodes)).numpy()
    _, rows, of_reference = np.intersect1d(ids, reference.node_ids.numpy(), return_indices=True)
    if rows.size:
        now, before = graph.x[rows], to_matrix(reference.x)[of_reference]
        differs = abs(now - before).max(axis=1)
        differs = differs.toarray().ravel() if sp.issparse(differs) else differs
        is_same = differs == 0
        seen[rows] = is_same & (is_same.mean() > 0.5)
    if not seen.any():
        only = [_rows_once(x) for x in (graph.x, to_matrix(reference.x))]
        _, same, _ = np.intersect1d(only[0][0], only[1][0], True, return_indices=True)
        if same.size >= max(MIN_EQUAL, min(len(one[0]) for one in only) / 2):
            seen[only[0][1][same]] = True
    return seen


def _rows_once(x: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """Checksums of the rows of features $[N, D]$ that occur once, and their row numbers."""
    factors = np.random.default_rng(0).integers(2**64, size=x.shape[1], dtype=np.uint64)
    sums = np.zeros(x.shape[0], np.uint64)
    for column, (rows, values) in zip(factors, nonzero_entries(x), strict=True):
        sums[rows] += column * values.astype(np.float32).view(np.uint32)
    found, first, counts = np.unique(sums, return_index=True, return_counts=True)
    return found[counts == 1], first[counts == 1]


def sample(size: int, max_size: int, random: np.random.Generator) -> np.ndarray:
    """Sorted row numbers: all `size` rows, or a random sample of `max_size` of them."""
    if size <= max_size:
        return np.arange(size)
    return np.sort(random.choice(size, max_size, replace=False))

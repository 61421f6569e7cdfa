"""A graph that is read, normalised and predicted once for all sections of a diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.checks import check_times
from canet.data.graph import UserGraph, match_classes
from canet.data.graph_data import GraphLike, NodeSet
from canet.data.labels import check_labels
from canet.data.task import sample_nodes
from canet.diagnosis.sampled import MAX_NODES, sampled_part
from canet.errors import InputError
from canet.estimator.classifier import NodeClassifier
from canet.estimator.plan import fits_in_memory
from canet.estimator.reference import Reference, id_checksums
from canet.models import Average, Fitted, FittedLinear, FittedNetwork, FittedTrees
from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.reading.prepared import PreparedGraph
from canet.scoring.intervals import Estimate, score
from canet.scoring.metrics import METRICS, Metric
from canet.util.sparse import components, from_scipy, to_scipy

MAX_DENSE = 64  # columns of a matrix that is not kept sparse
MIN_PAIRS = 10_000  # of nodes, whose order is compared
Matrix: TypeAlias = Any
"""Features $[n, D]$: a numpy array, or a scipy CSR matrix if the features are sparse."""


def seed_of(model: NodeClassifier) -> int:
    """The seed of all random draws: `random_state` of the model, or 0 if it is not an integer."""
    return int(model.random_state) if isinstance(model.random_state, int | np.integer) else 0


class Member(NamedTuple):
    """A model whose input may be changed, perhaps after its first, linear map."""

    model: Fitted  # reads `input` instead of features
    prepared: Features  # features $[N, D]$ after the preparation by the model
    first_map: np.ndarray | None  # weights of the first map $[D, H]$; None: there is none
    input: Matrix  # output of the first map $[N, H]$ without its bias, or the features

    @classmethod
    def of(cls, model: Fitted, graph: PreparedGraph) -> Member:
        """Split a network after its first layer, and trees after their projection."""
        if isinstance(model, FittedNetwork):
            own = graph.features(model.method.settings.scaling)
            first_map = model.method.model.phi_in.weight.detach().cpu().numpy().T
            mapped = map_columns(own, first_map, slice(None))
            return cls(after_first_map(model), own, first_map, mapped)
        x = graph.user_graph.x
        if isinstance(model, FittedTrees) and model.components is not None:
            first_map = model.components.numpy().T
            mapped = map_columns(x, first_map, slice(None))
            return cls(model.after_projection(), x, first_map, mapped)
        return cls(model, x, None, as_matrix(x))

    def replacing(
        self, columns: np.ndarray, graph: PreparedGraph, rows: Tensor
    ) -> Callable[[np.ndarray], Tensor]:
        """Return the function: donors $[N]$ → logits with these columns of the donors.

        The logits of a linear model are a sum over columns, so only changed ones are computed.
        """
        if isinstance(self.model, FittedLinear):
            part, x = self.model.part(columns), dense_if_narrow(self.input[:, columns])

            def share(values: Matrix) -> Tensor:
                return part.read(graph.with_features(as_tensor(values)), rows).logits

            others = self.model.read(graph, rows).logits - share(x)
            return lambda donors: others + share(x[donors])
        if self.first_map is not None:
            changed = map_columns(self.prepared, self.first_map, columns)
        else:
            chosen = np.zeros(self.input.shape[1], np.float32)
            chosen[columns] = 1
            is_sparse = sp.issparse(self.input)
            changed = self.input @ sp.diags(chosen) if is_sparse else self.input * chosen
        fixed = self.input - changed
        return lambda donors: self.read(graph, rows, fixed + changed[donors])

    def read(self, graph: PreparedGraph, rows: Tensor, changed: Matrix | None = None) -> Tensor:
        """Return the logits of some rows, perhaps with another input."""
        x = as_tensor(self.input if changed is None else changed)
        return self.model.read(graph, rows, x).logits


@dataclass(frozen=True)
class DiagnosedGraph:
    """A graph with the predictions of the model."""

    members: list[Member]  # the model, or the members of an average
    prepared: PreparedGraph  # the graph as the model reads it
    combine: Callable[[list[Tensor]], Tensor]  # logits $[n, C]$ of the members → of the model
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
    def is_correct(self) -> np.ndarray:
        """Whether the prediction of each scored node is correct."""
        return np.asarray((self.prediction == self.y)[self.scored])

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

    def replacing(self, columns: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function: donors $[N]$ → logits $[n, C]$ with these columns of the donors."""
        rows = torch.from_numpy(self.rows)
        changes = [member.replacing(columns, self.prepared, rows) for member in self.members]
        return lambda donors: self._combined(change(donors) for change in changes)

    def predict_edges(self, edge_index: Tensor, edge_weight: Tensor | None = None) -> np.ndarray:
        """Logits $[n, C]$ with other edges $[2, E]$ and weights $[E]$."""
        graph, rows = torch.from_numpy(self.graph), torch.from_numpy(self.rows)
        other = self.prepared.with_edges(edge_index, edge_weight, graph)
        return self._combined(member.read(other, rows) for member in self.members)

    def _combined(self, logits: Iterable[Tensor]) -> np.ndarray:
        return np.asarray(self.combine(list(logits)).double().numpy())


def read_graph(
    model: NodeClassifier,
    given: GraphLike,
    trained_on: bool = False,
    nodes: NodeSet | None = None,
) -> DiagnosedGraph:
    """Check a graph as `predict` does, and predict it.

    `nodes` are those to diagnose. By default these are the validation nodes that the model knows if
    it was trained on the graph, and else all nodes. `y`, `environment`, `time`, `batch` and
    `node_id` of the graph are used if they exist.
    """
    data = model.open_graph(given, in_memory=False)
    if "csr" in data and fits_in_memory(UserGraph(data.x, csr=data.csr)):
        data = model.open_graph(data)
    reader = model.prepare(data)
    whole, n = reader.user_graph, reader.user_graph.num_nodes
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
    members = fitted.members if isinstance(fitted, Average) else [fitted]
    if prepared.in_pieces:
        hops = max(one.num_hops for one in members)
        rows, typical = (sample_nodes(ids, MAX_NODES) for ids in (rows, torch.arange(n)))
        prepared, ids = sampled_part(prepared, rows, typical, hops)
        rows, at = torch.searchsorted(ids, rows.sort().values), ids.numpy()
        y, node_id = y[at], node_id[at]
        environment, time = (None if one is None else one[at] for one in (environment, time))
    own = prepared.user_graph
    graph = own.batch
    assert own.edge_index is not None
    if graph is None:
        graph = components(own.edge_index, n, own.edge_weight)
    found, x = fitted.read(prepared), as_matrix(own.x)
    return DiagnosedGraph(
        members=[Member.of(one, prepared) for one in members],
        prepared=prepared,
        combine=fitted.mean if isinstance(fitted, Average) and len(members) > 1 else itemgetter(0),
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
    with the same ids, and equal features are chance.
    """
    seen = np.zeros(graph.num_nodes, dtype=bool)
    ids = id_checksums(graph.node_id, torch.arange(graph.num_nodes)).numpy()
    _, rows, of_reference = np.intersect1d(ids, reference.node_ids.numpy(), return_indices=True)
    if rows.size:
        now, before = graph.x[rows], as_matrix(reference.x)[of_reference]
        differs = abs(now - before).max(axis=1)
        differs = differs.toarray().ravel() if sp.issparse(differs) else differs
        is_same = differs == 0
        seen[rows] = is_same & (is_same.mean() > 0.5)
    return seen


def after_first_map(network: FittedNetwork) -> FittedNetwork:
    """A network that reads the output $[N, H]$ of its first layer, without the bias.

    The first layer is linear, so it is applied once. A change of columns only changes their
    contribution to the output.
    """

    def add_bias(x: Any, bias: Tensor | None = None) -> Any:
        return x if bias is None else x + bias

    model, method = copy(network.method.model), copy(network.method)
    model.map_in = add_bias  # type: ignore[method-assign]
    method._modules = method._modules | {"model": model}
    method.settings = replace(method.settings, scaling="raw")
    return FittedNetwork(method, network.backbone)


def map_columns(x: Features, first_map: np.ndarray, columns: Any) -> np.ndarray:
    """$x_J W_J$ $[N, H]$ for some columns J of features $[N, D]$ and weights $[D, H]$."""
    if isinstance(x, ShiftedFeatures):
        offset = x.offset.numpy()[:, columns] @ first_map[columns]
        member = as_matrix(x.member)
        return np.asarray(map_columns(x.x, first_map, columns) + member @ offset)
    return np.asarray(as_matrix(x)[:, columns] @ first_map[columns])


def sample(size: int, max_size: int, random: np.random.Generator) -> np.ndarray:
    """Sorted row numbers: all `size` rows, or a random sample of `max_size` of them."""
    if size <= max_size:
        return np.arange(size)
    return np.sort(random.choice(size, max_size, replace=False))


def dense_if_narrow(x: Matrix) -> Matrix:
    """Convert a sparse matrix with few columns to an array."""
    return x.toarray() if sp.issparse(x) and x.shape[1] <= MAX_DENSE else x


def as_tensor(x: Matrix) -> Tensor:
    """Convert a matrix to a dense or sparse tensor."""
    return from_scipy(x) if sp.issparse(x) else torch.from_numpy(x)


def as_matrix(values: Tensor | SparseMatrix) -> Matrix:
    """Convert a dense or sparse CPU tensor to a matrix."""
    values = values.csr if isinstance(values, SparseMatrix) else values
    return to_scipy(values) if values.layout == torch.sparse_csr else np.asarray(values.numpy())

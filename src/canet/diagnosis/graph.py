"""A graph as all sections of a diagnosis share it: read, normalised and predicted once."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from canet.choice import EnsembleReader
from canet.data.checks import check_groups, check_nodes, check_times
from canet.data.graph_data import AnyGraph
from canet.data.user_graph import match_classes
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.scoring import score
from canet.errors import InputError
from canet.estimator.classifier import NodeClassifier, probabilities_of
from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.training.inference import GraphReader
from canet.util.sparse import components, to_scipy

Matrix: TypeAlias = Any
"""Features $[n, D]$: a numpy array, or a scipy CSR matrix where the graph's are sparse."""


def seed_of(model: NodeClassifier) -> int:
    """The seed of every draw of a diagnosis: the model's, or 0 where it is not a number."""
    return int(model.random_state) if isinstance(model.random_state, int | np.integer) else 0


class MappedMember(NamedTuple):
    """A network of the model on the graph, from its first map on, which is linear."""

    reader: GraphReader  # reads `mapped` in place of features
    prepared: Features  # the features $[N, D]$ as the network reads them
    first_map: np.ndarray  # $[D, H]$
    mapped: np.ndarray  # what the map makes of the features $[N, H]$, without its bias

    @classmethod
    def of(cls, reader: GraphReader) -> MappedMember:
        """The network and the graph of a reader."""
        first_map = reader.method.model.phi_in.weight.detach().cpu().numpy().T
        mapped = map_columns(reader.features, first_map, slice(None))
        after = after_first_map(reader, torch.from_numpy(mapped))
        return cls(after, reader.features, first_map, mapped)


@dataclass(frozen=True)
class DiagnosedGraph:
    """A graph with what the model makes of it."""

    members: list[MappedMember]  # the model's network, or all of an ensemble
    combine: Callable[[list[Tensor]], Tensor]  # logits $[n, C]$ of each member → of the model
    x: Matrix  # features $[N, D]$
    edge_index: Tensor  # edges $[2, E]$ (source, target) as the model reads them
    undirected: bool  # whether the model reads each edge both ways
    # Class number $[N]$ by the model's `classes_`; -1 where there is no label, C where the label is
    # a class that training did not have.
    y: np.ndarray
    # Number $[N]$ of each node's graph: given as `batch`, or its connected component.
    graph: np.ndarray
    # Number $[N]$ of each node's environment, or None; -1 where it has none.
    environment: np.ndarray | None
    time: np.ndarray | None  # time $[N]$ of each node, or None
    # Mask $[N]$ of the nodes that the model was not trained on, as far as the graph says so.
    held_out: np.ndarray
    node_id: np.ndarray  # what the user calls the nodes $[N]$
    probabilities: np.ndarray  # what the model predicts $[N, C]$
    metric: str  # what the model is scored by
    embedding: np.ndarray  # representations $[N, H]$
    # Of the pseudo environments at each layer $[N, K]$; empty if there are none.
    posteriors: list[np.ndarray]

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])

    @cached_property
    def scored(self) -> np.ndarray:
        """Mask $[N]$ of the nodes that are scored: labelled, and not trained on.

        ROC-AUC is of the two classes of training, so that a label of another one is left out.
        """
        other = self.y == self.probabilities.shape[1] if self.metric == "roc_auc" else False
        return (self.y >= 0) & self.held_out & ~np.asarray(other)

    @cached_property
    def score(self) -> Estimate | None:
        """The metric of these; None where it is undefined."""
        return score(self.metric, self.logits[self.scored], self.y[self.scored])

    @cached_property
    def right(self) -> np.ndarray:
        """Whether each of these is predicted right."""
        return np.asarray((self.prediction == self.y)[self.scored])

    @cached_property
    def degree(self) -> np.ndarray:
        """Incoming edges $[N]$ of each node."""
        return np.bincount(self.edge_index[1].numpy(), minlength=self.num_nodes)

    @cached_property
    def prediction(self) -> np.ndarray:
        """The likeliest class $[N]$ of each node."""
        return np.asarray(self.probabilities.argmax(axis=1))

    @cached_property
    def logits(self) -> np.ndarray:
        """Logarithms of the probabilities $[N, C]$: the logits, less a number for each node."""
        return np.log(np.maximum(self.probabilities, np.finfo(np.float64).tiny))

    @cached_property
    def mapped(self) -> np.ndarray:
        """What the first maps of all members make of the features $[N, H]$, side by side."""
        return np.concatenate([member.mapped for member in self.members], axis=1)

    def map_columns(self, columns: np.ndarray) -> np.ndarray:
        """What some columns contribute to `mapped` $[N, H]$."""
        parts = [map_columns(one.prepared, one.first_map, columns) for one in self.members]
        return np.concatenate(parts, axis=1)

    def predict_mapped(self, mapped: np.ndarray, nodes: np.ndarray | None = None) -> np.ndarray:
        """Logits $[n, C]$ of some nodes $[n]$, or of all, with other `mapped` $[N, H]$."""
        ids = None if nodes is None else torch.from_numpy(nodes)
        parts = torch.from_numpy(mapped).split([m.mapped.shape[1] for m in self.members], dim=1)
        pairs = zip(self.members, parts, strict=True)
        return self._combined([member.reader.read(ids, part).logits for member, part in pairs])

    def predict_edges(self, edge_index: Tensor) -> np.ndarray:
        """Logits $[N, C]$ with other edges, in the same graphs."""
        graph = torch.from_numpy(self.graph)
        readers = [member.reader.with_edges(edge_index, graph) for member in self.members]
        return self._combined([reader.read().logits for reader in readers])

    def _combined(self, logits: list[Tensor]) -> np.ndarray:
        return np.asarray(self.combine(logits).double().numpy())


def read_graph(model: NodeClassifier, data: AnyGraph, trained_on: bool = False) -> DiagnosedGraph:
    """A user's graph, checked as for `predict`, with the edges that the model reads.

    `y`, `environment`, `time`, `batch` and `node_id` of the graph are read where they exist, and
    `train_mask` if this is the graph that the model was trained on.
    """
    reader = model.prepare(data)
    own, n = reader.own, reader.own.num_nodes
    held_out = np.ones(n, dtype=bool)
    if trained_on and data.get("train_mask") is not None:
        held_out[check_nodes(data.train_mask, n, "train_mask").numpy()] = False
    environment, node_id = data.get("environment"), data.get("node_id")
    if environment is not None:
        environment = check_groups(environment, n, "environment")[1].numpy()
    graph = components(own.edge_index, n) if own.graph is None else own.graph
    y, time = class_numbers(data.get("y"), n, model.classes_), _times(data.get("time"), n)
    found, x = reader.read(), as_matrix(own.x)
    readers: list[Any] = reader.readers if isinstance(reader, EnsembleReader) else [reader]
    combine = reader.method.combine if isinstance(reader, EnsembleReader) else _only
    return DiagnosedGraph(
        members=[MappedMember.of(one) for one in readers],
        combine=combine,
        x=x,
        edge_index=own.edge_index,
        undirected=bool(model.undirected),
        y=y,
        graph=graph.numpy().astype(np.int64),
        environment=environment,
        time=time,
        held_out=held_out if held_out.any() else ~held_out,
        node_id=np.arange(n) if node_id is None else np.asarray(node_id),
        probabilities=probabilities_of(found.logits),
        metric=model.metric,
        embedding=found.embedding.numpy(),
        posteriors=[e.log_posterior.exp().cpu().double().numpy() for e in found.environments],
    )


def _only(logits: list[Tensor]) -> Tensor:
    return logits[0]


def after_first_map(reader: GraphReader, mapped: Tensor) -> GraphReader:
    """The same graph for a model that reads `mapped` features $[N, H]$ in place of its own.

    The first map is linear: it is applied once, and a change of columns changes what they add.
    """

    def add_bias(x: Any, bias: Tensor | None = None) -> Any:
        return x if bias is None else x + bias

    model, method, other = copy(reader.method.model), copy(reader.method), copy(reader)
    model.map_in = add_bias  # type: ignore[method-assign]
    method._modules = method._modules | {"model": model}
    method.settings = replace(method.settings, features="raw")
    other.method, other.own, other.features = method, replace(reader.own, x=mapped), mapped
    return other


def map_columns(x: Features, first_map: np.ndarray, columns: Any) -> np.ndarray:
    """$x_J W_J$ $[N, H]$ of some columns J of features $[N, D]$ and rows of a map $[D, H]$."""
    if isinstance(x, ShiftedFeatures):
        offset = x.offset.numpy()[:, columns] @ first_map[columns]
        member = as_matrix(x.member)
        return np.asarray(map_columns(x.x, first_map, columns) + member @ offset)
    return np.asarray(as_matrix(x)[:, columns] @ first_map[columns])


def class_numbers(y: Any, num_nodes: int, classes: np.ndarray) -> np.ndarray:
    """Place $[N]$ of each label among the classes; -1: no label, C: a label not among them."""
    if y is None:
        return np.full(num_nodes, -1)
    numbers, known = match_classes(y, num_nodes, classes)
    return np.where(known & (numbers.numpy() < 0), len(classes), numbers.numpy())


def _times(time: Any, num_nodes: int) -> np.ndarray | None:
    """Times $[N]$, where every node has one: they only show what environments agree with."""
    try:
        return None if time is None else check_times(time, num_nodes)
    except InputError:
        return None


def sample(size: int, most: int, random: np.random.Generator) -> np.ndarray:
    """All of `size` rows, or `most` of them drawn without replacement, in order."""
    return np.sort(random.choice(size, most, replace=False)) if size > most else np.arange(size)


def as_matrix(values: Tensor | SparseMatrix) -> Matrix:
    """A tensor on the CPU, sparse or not, as a matrix."""
    values = values.csr if isinstance(values, SparseMatrix) else values
    return to_scipy(values) if values.layout == torch.sparse_csr else np.asarray(values.numpy())

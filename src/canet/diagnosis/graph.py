"""A graph of the user's as a diagnosis reads it, and the model that it is about."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from canet.data.checks import check_groups, check_nodes, check_times
from canet.data.user_graph import match_classes, read_user_graph
from canet.errors import InputError
from canet.estimator.reference import Reference
from canet.util.sparse import components, from_scipy, to_scipy

Matrix: TypeAlias = Any
"""Features $[n, D]$: a numpy array, or a scipy CSR matrix where the graph's are sparse."""


class Model(Protocol):
    """What a diagnosis asks of a fitted `canet.NodeClassifier`."""

    classes_: np.ndarray
    n_features_in_: int
    undirected: bool | None
    random_state: Any
    reference_: Reference

    def predict_proba(self, data: Data) -> np.ndarray: ...
    def predictor(self, data: Data) -> Callable[[Tensor], np.ndarray]: ...
    def embed(self, data: Data) -> np.ndarray: ...
    def environments(self, data: Data) -> list[np.ndarray]: ...
    def unlike_training(self, data: Data) -> np.ndarray: ...


def seed_of(model: Model) -> int:
    """The seed of every draw of a diagnosis: the model's, or 0 where it has no number."""
    return int(model.random_state) if isinstance(model.random_state, int | np.integer) else 0


@dataclass(frozen=True)
class Diagnosed:
    """A graph in the one form that the parts of a diagnosis share.

    Args:
        data: The graph as it was given, never changed.
        x: Features $[N, D]$.
        edge_index: Edges $[2, E]$ (source, target).
        y: Class number $[N]$ by the model's `classes_`; -1 where there is no label, C where the
            label is a class that training did not have.
        graph: Number $[N]$ of each node's graph: given as `batch`, or its connected component.
        environment: Number $[N]$ of each node's environment, or None; -1 where it has none.
        time: Time $[N]$ of each node, or None.
        held_out: Mask $[N]$ of the nodes that the model was not trained on, as far as the graph
            says so.
        node_id: What the user calls the nodes $[N]$.
        probabilities: What the model predicts $[N, C]$.
    """

    data: Data
    x: Matrix
    edge_index: Tensor
    y: np.ndarray
    graph: np.ndarray
    environment: np.ndarray | None
    time: np.ndarray | None
    held_out: np.ndarray
    node_id: np.ndarray
    probabilities: np.ndarray

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])

    @property
    def scored(self) -> np.ndarray:
        """Mask $[N]$ of the nodes that accuracy is read on: labelled, and not trained on."""
        return (self.y >= 0) & self.held_out

    @property
    def degree(self) -> np.ndarray:
        """Incoming edges $[N]$ of each node."""
        return np.bincount(self.edge_index[1].numpy(), minlength=self.num_nodes)

    @property
    def prediction(self) -> np.ndarray:
        """The likeliest class $[N]$ of each node."""
        return np.asarray(self.probabilities.argmax(axis=1))

    @property
    def logits(self) -> np.ndarray:
        """Logarithms of the probabilities $[N, C]$: the logits, less a number for each node."""
        return np.log(np.maximum(self.probabilities, np.finfo(np.float64).tiny))

    def with_edges(self, edge_index: Tensor) -> Data:
        """A copy with other edges whose nodes still belong to the same graphs."""
        changed = copy.copy(self.data)
        changed.edge_index = edge_index
        changed.batch = torch.from_numpy(self.graph)
        return changed


def read(model: Model, data: Data, trained_on: bool = False) -> Diagnosed:
    """A user's graph, checked as at every other door and with the edges that the model reads.

    Of the graph's own columns `y`, `environment`, `time`, `batch` and `node_id` are read where they
    are there, and `train_mask` if this is the graph that the model was trained on.
    """
    own = read_user_graph(data, undirected=bool(model.undirected))
    n = own.num_nodes
    held_out = np.ones(n, dtype=bool)
    if trained_on and data.get("train_mask") is not None:
        held_out[check_nodes(data.train_mask, n, "train_mask").numpy()] = False
    environment, node_id = data.get("environment"), data.get("node_id")
    if environment is not None:
        environment = check_groups(environment, n, "environment")[1].numpy()
    graph = components(own.edge_index, n) if own.graph is None else own.graph
    return Diagnosed(
        data=data,
        x=to_scipy(own.x) if own.x.layout == torch.sparse_csr else own.x.numpy(),
        edge_index=own.edge_index,
        y=class_numbers(data.get("y"), n, model.classes_),
        graph=graph.numpy().astype(np.int64),
        environment=environment,
        time=_times(data.get("time"), n),
        held_out=held_out if held_out.any() else ~held_out,
        node_id=np.arange(n) if node_id is None else np.asarray(node_id),
        probabilities=model.predict_proba(data),
    )


def as_features(x: Matrix) -> Tensor:
    """Features $[n, D]$ as a model takes them."""
    return from_scipy(x) if sp.issparse(x) else torch.from_numpy(x)


def class_numbers(y: Any, num_nodes: int, classes: np.ndarray) -> np.ndarray:
    """Place $[N]$ of each label among the classes; -1 of no label, C of a label not among them."""
    if y is None:
        return np.full(num_nodes, -1)
    numbers, known = match_classes(y, num_nodes, classes)
    return np.where(known & (numbers.numpy() < 0), len(classes), numbers.numpy())


def _times(time: Any, num_nodes: int) -> np.ndarray | None:
    """Times $[N]$, where every node has one: they only say what environments go with."""
    try:
        return None if time is None else check_times(time, num_nodes)
    except InputError:
        return None


def sample(size: int, most: int, random: np.random.Generator) -> np.ndarray:
    """All of `size` rows, or `most` of them drawn without return, in order."""
    return np.sort(random.choice(size, most, replace=False)) if size > most else np.arange(size)


def as_matrix(values: Any) -> Matrix:
    """A tensor, sparse or not, or an array as a matrix."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return to_scipy(values) if values.layout == torch.sparse_csr else np.asarray(values.numpy())

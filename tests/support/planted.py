"""Models and graphs with a known diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor
from torch_geometric.data import Data

from canet.data.graph import check_graph
from canet.data.graph_files.encoding import Roles
from canet.diagnosis.context import Context
from canet.diagnosis.graph import read_graph
from canet.estimator.reference import Reference, id_checksums
from canet.models import Fitted
from canet.models.base import Reader, State
from canet.nn.model import Prediction
from canet.reading.prepared import PreparedGraph
from canet.scoring.calibration import Calibration
from canet.store.result import Candidate

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Features $[N, D]$ and edges $[2, E]$ → logits $[N, C]$."""
Posteriors = Callable[[Tensor], list[np.ndarray]]
"""Features $[N, D]$ → posterior $[N, K]$ of each layer."""


class PlantedModel(Fitted):
    """Predicts a graph by a rule; the representations are the logits."""

    kind = "planted"

    def __init__(self, rule: Rule, posteriors: Posteriors | None) -> None:
        self.rule, self.posteriors = rule, posteriors

    def read(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Prediction:
        x, edges = graph.data.x.to_dense(), graph.data.edge_index
        logits = torch.from_numpy(self.rule(x.double().numpy(), edges.numpy()))
        logits = logits if nodes is None else logits[nodes]
        found = [] if self.posteriors is None else self.posteriors(x)
        environments: Any = [
            SimpleNamespace(log_posterior=torch.from_numpy(posterior).log()) for posterior in found
        ]
        return Prediction(logits, logits, environments)

    def state(self) -> State:
        raise NotImplementedError

    @classmethod
    def restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> PlantedModel:
        raise NotImplementedError


@dataclass
class Planted:
    """A fitted model that predicts by a rule."""

    rule: Rule
    reference_: Reference
    n_features_in_: int
    calibration_: Calibration
    classes_: np.ndarray = field(default_factory=lambda: np.array([0, 1]))
    posteriors: Posteriors | None = None
    undirected: bool | None = False
    both_ways_ = False
    array_names_ = Roles()
    random_state: Any = 0
    verbose: int = 0
    method: str = "planted"
    backbone_name: str = "rule"
    metric: str = "accuracy"
    candidates_: list[Candidate] = field(default_factory=list)
    scores_: dict[str, float] = field(default_factory=lambda: {"train": 1.0, "valid": 0.9})
    prepared: int = 0

    @property
    def method_name(self) -> str:
        return self.method

    def reference(self) -> Reference:
        return self.reference_

    def open_graph(self, data: Data, in_memory: bool = True) -> Data:
        return data

    def prepare(self, data: Data) -> Reader:
        self.prepared += 1
        graph = check_graph(data, undirected=bool(self.undirected))
        return Reader(PlantedModel(self.rule, self.posteriors), PreparedGraph(graph))


def sign_of(column: int, scale: float = 3.0) -> Rule:
    """Class 1 if a column is positive; edges are ignored."""

    def rule(x: np.ndarray, edge_index: np.ndarray) -> np.ndarray:
        return np.stack([0 * x[:, column], scale * x[:, column]], axis=1)

    return rule


def neighbours_sign(column: int) -> Rule:
    """Class 1 if the sum of a column over the neighbours is positive."""

    def rule(x: np.ndarray, edge_index: np.ndarray) -> np.ndarray:
        total = np.zeros(len(x))
        np.add.at(total, edge_index[1], x[edge_index[0], column])
        return np.stack([0 * total, total], axis=1)

    return rule


def random_graph(n: int = 200, columns: int = 6, seed: int = 0, degree: int = 4) -> Data:
    """Standard normal features, random edges, label 1 if column 3 is positive."""
    random = np.random.default_rng(seed)
    x = torch.from_numpy(random.normal(size=(n, columns)).astype(np.float32))
    drawn = random.permutation(n * n)[: degree * n]  # no edge twice
    edge_index = torch.from_numpy(np.stack([drawn % n, drawn // n]))
    return Data(x=x, edge_index=edge_index, y=(x[:, 3 % columns] > 0).long(), num_nodes=n)


def reference(rule: Rule, data: Data, classes: int = 2) -> Reference:
    """Reference sample of a model with this rule, trained on all nodes of a graph."""
    x = data.x.to_dense() if data.x.layout != torch.strided else data.x
    logits = torch.from_numpy(rule(x.double().numpy(), data.edge_index.numpy()))
    first, second = data.y[data.edge_index]
    return Reference(
        x=data.x,
        y=data.y,
        logits=logits,
        embedding=logits,
        degree=torch.bincount(data.edge_index[1], minlength=len(x)),
        environment=torch.empty(0, dtype=torch.long),
        valid_nodes=torch.arange(len(x)),
        valid_logits=logits,
        valid_y=data.y,
        valid_embedding=logits,
        train_label_counts=torch.bincount(data.y, minlength=classes),
        homophily=(first == second).double().mean(),
        node_ids=id_checksums(data.get("node_id"), torch.arange(len(x))),
        valid_node_ids=id_checksums(data.get("node_id"), torch.arange(len(x))),
    )


def planted(rule: Rule, data: Data, **known: Any) -> Planted:
    """A model with a rule, trained on a graph."""
    sample = reference(rule, data)
    known["calibration_"] = sample.calibrate(known.get("metric", "accuracy"), weighted=False)
    return Planted(rule, sample, n_features_in_=data.x.shape[1], **known)


def make_context(model: Planted, new: Data | None = None, **known: Any) -> Context:
    """The input of a section: a model and a new graph."""
    graphs = {} if new is None else {"new": read_graph(model, new)}
    names = list("abcdefghij"[: model.n_features_in_])
    return Context(model, graphs, names, **known)


def labelled(n: int, seed: int = 0, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn from their probabilities: perfectly calibrated."""
    random = np.random.default_rng(seed)
    logits = random.normal(scale=2, size=(n, classes))
    probabilities = softmax(logits, axis=1)
    y = (random.random((n, 1)) > probabilities.cumsum(axis=1)).sum(axis=1)
    return logits, np.minimum(y, classes - 1)

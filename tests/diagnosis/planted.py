"""Models and graphs whose diagnosis is known beforehand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from canet.diagnosis import Diagnosis
from canet.errors import InputError
from canet.estimator.column_screen import ColumnScreen
from canet.estimator.reference import Reference

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Features $[N, D]$ and edges $[2, E]$ → logits $[N, C]$."""


@dataclass
class Planted:
    """A fitted model that predicts by a rule; its representations are its logits."""

    rule: Rule
    reference_: Reference
    n_features_in_: int
    classes_: np.ndarray = field(default_factory=lambda: np.array([0, 1]))
    posteriors: Callable[[Data], list[np.ndarray]] | None = None
    undirected: bool | None = False
    random_state: Any = 0
    verbose: int = 0
    method: str = "planted"
    backbone: str = "rule"
    metric: str = "accuracy"
    scores_: dict[str, float] = field(default_factory=lambda: {"train": 1.0, "valid": 0.9})

    def predict_proba(self, data: Data) -> np.ndarray:
        return torch.from_numpy(self._logits(data)).softmax(dim=1).numpy()

    def predictor(self, data: Data) -> Callable[[Tensor], np.ndarray]:
        def probabilities(x: Tensor) -> np.ndarray:
            changed = copy.copy(data)
            changed.x = x
            return self.predict_proba(changed)

        return probabilities

    def embed(self, data: Data) -> np.ndarray:
        return self._logits(data)

    def unlike_training(self, data: Data) -> np.ndarray:
        return self.reference_.unlike_training(torch.from_numpy(self._logits(data))).numpy()

    def environments(self, data: Data) -> list[np.ndarray]:
        if self.posteriors is None:
            raise InputError("method 'planted' infers no environments: canet does")
        return self.posteriors(data)

    def _logits(self, data: Data) -> np.ndarray:
        x = data.x.to_dense() if data.x.layout != torch.strided else data.x
        return self.rule(x.double().numpy(), data.edge_index.numpy())


def sign_of(column: int, scale: float = 3.0) -> Rule:
    """Class 1 where a column is positive, whatever the rest of the graph is."""

    def rule(x: np.ndarray, edge_index: np.ndarray) -> np.ndarray:
        return np.stack([0 * x[:, column], scale * x[:, column]], axis=1)

    return rule


def neighbours_sign(column: int) -> Rule:
    """Class 1 where the sum of a column over the nodes that a node reads is positive."""

    def rule(x: np.ndarray, edge_index: np.ndarray) -> np.ndarray:
        total = np.zeros(len(x))
        np.add.at(total, edge_index[1], x[edge_index[0], column])
        return np.stack([0 * total, total], axis=1)

    return rule


def random_graph(n: int = 200, columns: int = 6, seed: int = 0, degree: int = 4) -> Data:
    """Standard normal features, random edges, label 1 where column 3 is positive."""
    random = np.random.default_rng(seed)
    x = torch.from_numpy(random.normal(size=(n, columns)).astype(np.float32))
    edge_index = torch.from_numpy(random.integers(n, size=(2, degree * n)))
    return Data(x=x, edge_index=edge_index, y=(x[:, 3 % columns] > 0).long(), num_nodes=n)


def reference(rule: Rule, data: Data, classes: int = 2) -> Reference:
    """What a model with this rule remembers of a graph all of whose nodes it was trained on."""
    x = data.x.to_dense() if data.x.layout != torch.strided else data.x
    logits = torch.from_numpy(rule(x.double().numpy(), data.edge_index.numpy()))
    first, second = data.y[data.edge_index]
    return Reference(
        x=data.x,
        embedding=logits,
        degree=torch.bincount(data.edge_index[1], minlength=len(x)),
        environment=torch.empty(0, dtype=torch.long),
        valid_logits=logits,
        valid_y=data.y,
        valid_embedding=logits,
        train_label_counts=torch.bincount(data.y, minlength=classes),
        homophily=(first == second).double().mean(),
    )


def moving(columns: int, *numbers: int, given: bool = False) -> ColumnScreen:
    """A screen on which some columns clearly move between three groups, the first most."""
    share, spread = torch.full((columns,), 0.02), torch.full((columns,), 0.1)
    for i, number in enumerate(numbers):
        share[number], spread[number] = 0.8 - 0.1 * i, 0.5
    return ColumnScreen(spread, share, torch.tensor(0.05), torch.tensor(3), torch.tensor(given))


def among_others(found: Diagnosis) -> Diagnosis:
    """The same with two more columns, which do not move."""
    between = found.between_groups
    assert between is not None
    columns = [*between.columns, *between.columns[-2:]]
    return replace(found, between_groups=replace(between, columns=columns))


def planted(rule: Rule, data: Data, **known: Any) -> Planted:
    """A model with a rule, fitted on a graph."""
    return Planted(rule, reference(rule, data), n_features_in_=data.x.shape[1], **known)


def mask(n: int, nodes: list[int]) -> Tensor:
    chosen = torch.zeros(n, dtype=torch.bool)
    chosen[nodes] = True
    return chosen

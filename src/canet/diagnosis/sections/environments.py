"""The pseudo environments that a model infers: how many it uses, and what they agree with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import entr

from canet.diagnosis.examination import Examination
from canet.diagnosis.graph import DiagnosedGraph, sample
from canet.training.environments import effective_number

MAX_NODES = 20_000  # of which agreement is computed
EXAMPLES = 3
CLEAR_SEPARATION, CLEAR_AGREEMENT = 1.05, 0.1


@dataclass(frozen=True)
class Example:
    """A node with one of the highest posteriors of an environment."""

    node: str
    posterior: float
    prediction: str


@dataclass(frozen=True)
class Layer:
    """The environments of one layer."""

    used: float  # how many are used: the exponential of the entropy of the mean posterior, 1 to K
    # How many the nodes are distinguished by: the exponential of the information that a node has
    # about its environment, entropy of the mean posterior less mean entropy of the posteriors. 1 if
    # all nodes have the same posterior, whatever it is.
    distinguished: float
    mean_posterior: list[float]  # of each environment $[K]$
    # What the likeliest environment agrees with, the best first: adjusted mutual information with
    # the node's class, prediction, given environment, degree and time (quartiles), 0 by chance and
    # 1 at best.
    agreement: dict[str, float]
    examples: list[list[Example]]  # of each environment $[K]$, the nodes with the highest posterior

    @property
    def distinguishes(self) -> bool:
        """Whether nodes get different mixtures of environments."""
        return self.distinguished >= CLEAR_SEPARATION

    @property
    def best_match(self) -> str | None:
        """What the environments agree with best; None where nothing clearly agrees."""
        name = next(iter(self.agreement), None)
        return name if name and self.agreement[name] >= CLEAR_AGREEMENT else None


@dataclass(frozen=True)
class Environments:
    """The environments that a model infers on one graph: how many there are, and each layer's."""

    number: int
    layers: list[Layer]


def examine(exam: Examination) -> dict[str, Environments]:
    """What the model made of the environments of each graph; empty if it infers none."""
    classes = [str(name) for name in exam.model.classes_]
    return {
        name: environments(graph, classes, exam.seed)
        for name, graph in exam.graphs.items()
        if graph.posteriors
    }


def environments(graph: DiagnosedGraph, classes: list[str], seed: int = 0) -> Environments:
    """The environments of one graph."""
    traits = _traits(graph)
    nodes = sample(graph.num_nodes, MAX_NODES, np.random.default_rng(seed))
    layers = []
    for posterior in graph.posteriors:
        mode = posterior.argmax(axis=1)
        agreement = {
            name: _agreement(mode[nodes], trait[nodes], known[nodes])
            for name, (trait, known) in traits.items()
        }
        layers.append(
            Layer(
                used=effective_number(torch.from_numpy(posterior)),
                distinguished=distinguished(posterior),
                mean_posterior=posterior.mean(axis=0).tolist(),
                agreement=dict(sorted(agreement.items(), key=lambda pair: -pair[1])),
                examples=[_examples(graph, column, classes) for column in posterior.T],
            )
        )
    return Environments(graph.posteriors[0].shape[1], layers)


def distinguished(posterior: np.ndarray) -> float:
    r"""$\exp(H(\bar p) - \frac{1}{n} \sum_v H(p_v))$ of posteriors $p$ $[n, K]$: 1 to K."""
    information = entr(posterior.mean(axis=0)).sum() - entr(posterior).sum(axis=1).mean()
    return float(np.exp(max(0.0, information)))


def _traits(graph: DiagnosedGraph) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What may distinguish nodes $[N]$, where it varies, and where it is known $[N]$."""
    every = np.ones(graph.num_nodes, dtype=bool)
    traits = {
        "label": (graph.y, graph.y >= 0),
        "prediction": (graph.prediction, every),
        "degree": (quartile(graph.degree), every),
    }
    if graph.environment is not None:
        traits["given environment"] = (graph.environment, graph.environment >= 0)
    if graph.time is not None:
        traits["time"] = (quartile(graph.time), every)
    return {name: (t, known) for name, (t, known) in traits.items() if np.unique(t[known]).size > 1}


def quartile(values: np.ndarray) -> np.ndarray:
    """In which quarter of the values each lies $[N]$, 0 to 3; equal values lie together."""
    return np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values)


def _agreement(mode: np.ndarray, trait: np.ndarray, known: np.ndarray) -> float:
    """Adjusted mutual information on the known nodes; 0 where either never varies."""
    from sklearn.metrics import adjusted_mutual_info_score

    mode, trait = mode[known], trait[known]
    if np.unique(mode).size < 2 or np.unique(trait).size < 2:
        return 0.0
    return float(adjusted_mutual_info_score(trait, mode))


def _examples(graph: DiagnosedGraph, posterior: np.ndarray, names: list[str]) -> list[Example]:
    highest = np.argsort(-posterior, kind="stable")[:EXAMPLES]
    of = graph.prediction
    return [Example(str(graph.node_id[i]), float(posterior[i]), names[of[i]]) for i in highest]

"""The pseudo environments that a model infers: how many it uses, and what they go with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from canet.diagnosis.graph import Diagnosed, Model, sample, seed_of
from canet.errors import InputError
from canet.training.environments import effective_number

MOST_NODES = 20_000  # of which agreement is computed
EXAMPLES = 3


@dataclass(frozen=True)
class Example:
    """A node that a layer is surest to put into an environment."""

    node: str
    posterior: float
    prediction: str


@dataclass(frozen=True)
class Layer:
    """The environments of one layer.

    Args:
        used: How many are used: the exponential of the entropy of the mean posterior, 1 to K.
        told_apart: How many the nodes are told apart by: the exponential of the information that a
            node has about its environment, entropy of the mean posterior less mean entropy of the
            posteriors. 1 if all nodes have the same posterior, however many it spreads over.
        mean_posterior: Of each environment $[K]$.
        goes_with: What the likeliest environment agrees with, most first: adjusted mutual
            information with the node's class, prediction, given environment, degree and time
            (quartiles), 0 by chance and 1 at best.
        examples: Of each environment $[K]$, the nodes with the highest posterior.
    """

    used: float
    told_apart: float
    mean_posterior: list[float]
    goes_with: dict[str, float]
    examples: list[list[Example]]


@dataclass(frozen=True)
class Environments:
    """The environments that a model infers on one graph: how many there are, and each layer's."""

    number: int
    layers: list[Layer]


def environments(model: Model, graph: Diagnosed) -> Environments | None:
    """What a model made of the environments of a graph; None for a method that infers none."""
    try:
        posteriors = model.environments(graph.data)
    except InputError:
        return None
    names = [str(name) for name in model.classes_]
    traits = _traits(graph)
    nodes = sample(graph.num_nodes, MOST_NODES, np.random.default_rng(seed_of(model)))
    layers = []
    for posterior in posteriors:
        mode = posterior.argmax(axis=1)
        agreement = {
            name: _agreement(mode[nodes], trait[nodes], known[nodes])
            for name, (trait, known) in traits.items()
        }
        layers.append(
            Layer(
                used=effective_number(torch.from_numpy(posterior)),
                told_apart=told_apart(posterior),
                mean_posterior=posterior.mean(axis=0).tolist(),
                goes_with=dict(sorted(agreement.items(), key=lambda pair: -pair[1])),
                examples=[_examples(graph, column, names) for column in posterior.T],
            )
        )
    return Environments(posteriors[0].shape[1], layers)


def told_apart(posterior: np.ndarray) -> float:
    r"""$\exp(H(\bar p) - \frac{1}{n} \sum_v H(p_v))$ of posteriors $p$ $[n, K]$: 1 to K."""
    from scipy.special import entr

    information = entr(posterior.mean(axis=0)).sum() - entr(posterior).sum(axis=1).mean()
    return float(np.exp(max(0.0, information)))


def _traits(graph: Diagnosed) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What a node may be told by $[N]$, where it varies, and where it is known $[N]$."""
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


def _examples(graph: Diagnosed, posterior: np.ndarray, names: list[str]) -> list[Example]:
    highest = np.argsort(-posterior, kind="stable")[:EXAMPLES]
    prediction = graph.prediction
    return [
        Example(str(graph.node_id[i]), float(posterior[i]), names[prediction[i]]) for i in highest
    ]

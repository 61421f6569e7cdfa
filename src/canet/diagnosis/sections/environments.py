"""The pseudo-environments of a model: how many it uses, and which node properties they match."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import entr

from canet.diagnosis.context import Context
from canet.diagnosis.graph import DiagnosedGraph, sample
from canet.training.environments import effective_number

MAX_NODES = 20_000  # for the computation of the agreement
NUM_EXAMPLES = 3
CLEAR_SEPARATION, CLEAR_AGREEMENT = 1.05, 0.1


@dataclass(frozen=True)
class Example:
    """A node with one of the highest posteriors of a pseudo-environment."""

    node: str
    posterior: float
    prediction: str


@dataclass(frozen=True)
class Layer:
    """The pseudo-environments of one layer."""

    used: float  # effective number: exponential of the entropy of the mean posterior, 1 to K
    # Effective number that separates the nodes: exponential of the mutual information between node
    # and pseudo-environment. 1 if all nodes have the same posterior.
    distinguished: float
    mean_posterior: list[float]  # of each pseudo-environment $[K]$
    # Adjusted mutual information of the most likely pseudo-environment with label, prediction,
    # given environment, and quartiles of degree and time, highest first; 0 by chance, 1 at best.
    agreement: dict[str, float]
    examples: list[list[Example]]  # nodes with the highest posterior, per pseudo-environment $[K]$

    @property
    def separates_nodes(self) -> bool:
        """Whether different nodes have different mixtures of pseudo-environments."""
        return self.distinguished >= CLEAR_SEPARATION

    @property
    def best_match(self) -> str | None:
        """The node property with the highest agreement; None if no agreement is clear."""
        name = next(iter(self.agreement), None)
        return name if name and self.agreement[name] >= CLEAR_AGREEMENT else None


@dataclass(frozen=True)
class Environments:
    """The pseudo-environments that a model infers on one graph."""

    number: int  # K
    layers: list[Layer]


def compute(context: Context) -> dict[str, Environments]:
    """Describe the pseudo-environments of each graph; empty if the method infers none."""
    classes = [str(name) for name in context.model.classes_]
    return {
        name: environments(graph, classes, context.seed)
        for name, graph in context.graphs.items()
        if graph.posteriors
    }


def environments(graph: DiagnosedGraph, classes: list[str], seed: int = 0) -> Environments:
    """Describe the pseudo-environments of one graph."""
    properties = _properties(graph)
    nodes = graph.rows[sample(graph.rows.size, MAX_NODES, np.random.default_rng(seed))]
    layers = []
    for posterior in graph.posteriors:
        mode = posterior.argmax(axis=1)
        agreement = {
            name: _agreement(mode[nodes], values[nodes]) for name, values in properties.items()
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


def _properties(graph: DiagnosedGraph) -> dict[str, np.ndarray]:
    """Name → values $[N]$ of a node property, -1 if unknown; without constant properties."""
    properties = {"label": graph.y, "prediction": graph.prediction}
    properties["degree"] = quartile(graph.degree)
    if graph.environment is not None:
        properties["given environment"] = graph.environment
    if graph.time is not None:
        properties["time"] = quartile(graph.time)
    return {name: own for name, own in properties.items() if np.unique(own[own >= 0]).size > 1}


def quartile(values: np.ndarray) -> np.ndarray:
    """Quartile $[N]$ of each value, 0 to 3; equal values are in the same quartile."""
    return np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values)


def _agreement(mode: np.ndarray, values: np.ndarray) -> float:
    """Adjusted mutual information where the values are known; 0 if one of them is constant."""
    from sklearn.metrics import adjusted_mutual_info_score

    mode, values = mode[values >= 0], values[values >= 0]
    if np.unique(mode).size < 2 or np.unique(values).size < 2:
        return 0.0
    return float(adjusted_mutual_info_score(values, mode))


def _examples(graph: DiagnosedGraph, posterior: np.ndarray, names: list[str]) -> list[Example]:
    highest = np.argsort(-posterior, kind="stable")[:NUM_EXAMPLES]
    return [
        Example(str(graph.node_id[i]), float(posterior[i]), names[graph.prediction[i]])
        for i in highest
    ]

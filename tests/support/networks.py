"""A small graph with special cases, and one model of each kind."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from canet.nn import (
    BACKBONES,
    Branches,
    CaNet,
    Features,
    GraphModel,
    NormalisedGraph,
    Operator,
    Prediction,
    SparseMatrix,
)
from canet.nn.backbones.gat import NEGATIVE_SLOPE
from canet.nn.layer import LayerInput
from canet.nn.operations import attend
from canet.nn.sparse_matrix import Pattern

NUM_NODES = 10
NUM_FEATURES = 4
NUM_CLASSES = 3
HIDDEN = 5

# Directed: 3 → 3 is a self-loop, 4 → 2 occurs twice, 9 has no incoming edges, 7 has no outgoing
# edges, and 8 is isolated.
EDGES = torch.tensor(
    [
        [0, 0, 1, 2, 3, 3, 4, 4, 2, 5, 6, 6, 9],
        [1, 2, 2, 3, 0, 3, 2, 2, 4, 6, 5, 7, 5],
    ]
)
NO_EDGES = torch.empty(2, 0, dtype=torch.long)

# Paper i cites i // 2 and i - 7: two hops from a few papers reach some of the others, but not all.
NUM_PAPERS = 40
CITATIONS = torch.tensor(
    [[i, cited] for i in range(1, NUM_PAPERS) for cited in (i // 2, i - 7) if cited >= 0]
).T


def _canet(**options: object) -> Callable[..., GraphModel]:
    def make(num_layers: int = 2, dropout: float = 0.0) -> GraphModel:
        return CaNet(
            NUM_FEATURES,
            NUM_CLASSES,
            hidden=HIDDEN,
            num_layers=num_layers,
            dropout=dropout,
            **options,
        )

    return make


def _plain(backbone: str, direction: str, **options: object) -> Callable[..., GraphModel]:
    def make(num_layers: int = 2, dropout: float = 0.0) -> GraphModel:
        model = BACKBONES[backbone].plain(
            NUM_FEATURES,
            NUM_CLASSES,
            hidden=HIDDEN,
            num_layers=num_layers,
            dropout=dropout,
            direction=direction,
            **options,
        )
        return with_biases(model)

    return make


CANET_MODELS = {
    f"canet {backbone} {estimator} {propagation} {direction}": _canet(
        backbone=backbone, estimator=estimator, propagation=propagation, direction=direction
    )
    for backbone in BACKBONES
    for estimator in ("node", "graph")
    for propagation in (("symmetric", "sum") if backbone == "gcn" else ("symmetric",))
    for direction in ("along", "against")
} | {
    "canet gcn shared environment": _canet(estimator="graph", shared_environment=True),
    "canet gat shared environment": _canet(backbone="gat", shared_environment=True),
    **{
        f"canet {backbone} mean of branches": _canet(backbone=backbone, learned_environment=False)
        for backbone in BACKBONES
    },
    "canet gcn norm": _canet(norm="layer"),
}
PLAIN_MODELS = {
    f"{backbone} {direction}": _plain(backbone, direction)
    for backbone in BACKBONES
    for direction in ("along", "against")
} | {
    f"{backbone} norm {residual=}": _plain(backbone, "along", norm="layer", residual=residual)
    for backbone in ("gcn", "gat", "gin")
    for residual in (False, True)
}
MODELS = CANET_MODELS | PLAIN_MODELS


def with_biases(model: GraphModel) -> GraphModel:
    """Set biases and scales, which some models initialise with constants, to random values."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or name.startswith("norms"):
            torch.nn.init.normal_(parameter)
    return model


def slow_norm(states: Sequence[Tensor], norm: torch.nn.LayerNorm) -> list[Tensor]:
    """LayerNorm of each node's state, by its mean and variance over the columns."""
    normed = []
    for z in states:
        mean = sum(z) / len(z)
        variance = sum((value - mean) ** 2 for value in z) / len(z)
        normed.append((z - mean) / (variance + 1e-5) ** 0.5 * norm.weight + norm.bias)
    return normed


def predict(
    model: GraphModel, x: Features, edges: Tensor = EDGES, num_nodes: int = NUM_NODES
) -> Prediction:
    """A forward pass over the whole graph, in the current mode of the model."""
    blocks = NormalisedGraph(edges, num_nodes, model.operators).whole(model.num_layers).blocks
    prediction: Prediction = model(x, blocks)
    return prediction


def apply(branches: Branches, z: Tensor, e: Tensor, edges: Tensor = EDGES) -> Tensor:
    """A layer over the whole graph."""
    block = NormalisedGraph(edges, len(z), branches.operators).whole(1).blocks[0]
    states: Tensor = branches(LayerInput(z, block, branches), e)
    return states


def attend_each(pattern: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor) -> Tensor:
    """Attention of K branches, one at a time.

    Shapes:
        - z $[n_{src}, H]$, scores $[n_{dst}, K]$ and $[n_{src}, K]$ → $[n_{dst}, K, H]$
    """
    pairs = zip(score_dst.split(1, dim=1), score_src.split(1, dim=1), strict=True)
    return torch.stack([attend(pattern, z, *pair, NEGATIVE_SLOPE) for pair in pairs], dim=1)


def operator_matrix(
    edges: Tensor, num_nodes: int, operator: Operator, edge_weight: Tensor | None = None
) -> SparseMatrix:
    """The normalised matrix $[N, N]$ of an operator."""
    graph = NormalisedGraph(edges, num_nodes, [operator], edge_weight=edge_weight)
    return graph.block.matrices[operator]

"""Shared helpers of the tests of backbones."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from canet.nn import Branches, NormalisedGraph
from canet.nn.layer import LayerInput
from tests.support.networks import EDGES, NUM_NODES

ALL = list(range(NUM_NODES))
SOME = [3, 8, 5, 9]  # a self-loop, an isolated node, two neighbours, no incoming edges

directions = pytest.mark.parametrize("direction", ["along", "against"])
fields = pytest.mark.parametrize("nodes", [ALL, SOME], ids=["whole graph", "field"])


def read_by(u: int, direction: str) -> list[int]:
    """Neighbours of a node of the small graph, once per edge."""
    edges = EDGES if direction == "along" else EDGES.flip(0)
    return [source for source, target in edges.T.tolist() if target == u]


def convolved(branches: Branches, u: int, z: Tensor) -> Tensor:
    """Symmetrically normalised sum over the neighbours of a node."""
    total = torch.zeros_like(z[u])
    for v in read_by(u, branches.direction):
        degrees = [len(read_by(node, branches.direction)) for node in (u, v)]
        total = total + (z[v] / math.sqrt(math.prod(degrees)) if all(degrees) else 0)
    return total


def slow_layer(
    branch: Callable[..., Tensor], branches: Branches, z: Tensor, e: Tensor, nodes: list[int]
) -> Tensor:
    """A layer for some nodes; `branch(branches, k, u, z)` is the output of branch k at node u."""
    rows = []
    for u, shares in zip(nodes, e, strict=True):
        outputs = [share * branch(branches, k, u, z) for k, share in enumerate(shares)]
        rows.append(sum(outputs, z[u]))
    return torch.stack(rows).clamp(min=0)


def layer(
    branches: Branches, z: Tensor, e: Tensor, nodes: list[int], number: Tensor | None = None
) -> Tensor:
    """The layer for all nodes, or on the receptive field of some.

    `number` is the graph of each node; None: the connected components.
    """
    graph = NormalisedGraph(EDGES, NUM_NODES, branches.operators, number)
    field = graph.whole(1) if nodes is ALL else graph.receptive_field(torch.tensor(nodes), 1)
    reads_others = nodes is not ALL and bool(branches.operators)
    assert (field.blocks[0].num_src > len(nodes)) == reads_others
    states: Tensor = branches(LayerInput(z[field.nodes], field.blocks[0], branches), e)
    return states

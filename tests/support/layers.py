"""Shared helpers of the tests of backbones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from canet.nn import Branches, Graph
from canet.nn.layer import LayerInput
from tests.support.networks import EDGES, NUM_NODES

ALL = list(range(NUM_NODES))
SOME = [3, 8, 5, 9]  # a self-loop, an isolated node, two neighbours, no incoming edges

directions = pytest.mark.parametrize("direction", ["along", "against"])
fields = pytest.mark.parametrize("nodes", [ALL, SOME], ids=["whole graph", "field"])


def layer(branches: Branches, z: Tensor, e: Tensor, nodes: list[int]) -> Tensor:
    """The layer for all nodes, or on the receptive field of some."""
    graph = Graph(EDGES, NUM_NODES, branches.operators)
    field = graph.whole(1) if nodes is ALL else graph.receptive_field(torch.tensor(nodes), 1)
    assert (field.blocks[0].num_src > len(nodes)) == (nodes is not ALL)
    states: Tensor = branches(LayerInput(z[field.nodes], field.blocks[0], branches), e)
    return states

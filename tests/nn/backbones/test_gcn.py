from __future__ import annotations

import math

import pytest
import torch

from canet.nn import Operator
from canet.nn.backbones.gcn import ConvolutionBranches
from canet.nn.operations import multiply
from tests.support.networks import EDGES, NUM_NODES, apply, operator_matrix

H, K = 4, 3


@pytest.mark.parametrize("propagation", ["symmetric", "sum"])
def test_convolutions_map_neighbours_by_the_first_half_and_the_node_by_the_second(
    propagation: str,
) -> None:
    branches = ConvolutionBranches(H, K, propagation=propagation)
    own, e = torch.randn(NUM_NODES, H), torch.rand(NUM_NODES, K)
    matrix = operator_matrix(EDGES, NUM_NODES, Operator(propagation))
    neighbours = multiply(matrix, torch.eye(NUM_NODES)) @ own
    states = apply(branches, own, e)
    for u in range(NUM_NODES):
        expected = own[u]
        for k in range(K):
            of_neighbours, of_self = branches.weight[k, :H], branches.weight[k, H:]
            expected = expected + e[u, k] * (neighbours[u] @ of_neighbours + own[u] @ of_self)
        torch.testing.assert_close(states[u], expected.clamp(min=0))


def test_initial_weights_stay_within_their_bounds() -> None:
    hidden = 16
    weight = ConvolutionBranches(hidden, K).weight
    assert 0.9 / math.sqrt(hidden) < weight.abs().max() <= 1 / math.sqrt(hidden)

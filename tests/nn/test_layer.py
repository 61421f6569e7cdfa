from __future__ import annotations

import pytest
import torch

from canet.nn import EnvironmentEstimator, Graph, Operator
from canet.nn.backbones.gat import AttentionBranches
from canet.nn.backbones.gcn import ConvolutionBranches
from canet.nn.layer import LayerInput
from canet.nn.operations import multiply
from tests.support.networks import EDGES, NUM_NODES

H, K = 4, 3
SYMMETRIC = Operator("symmetric")


def field(operators: tuple[Operator, ...]) -> tuple[torch.Tensor, object]:
    """States and a block with fewer destinations than sources."""
    part = Graph(EDGES, NUM_NODES, operators).receptive_field(torch.tensor([2, 6]), 1)
    assert len(part.nodes) > 2
    return torch.randn(len(part.nodes), H), part.blocks[0]


def test_gathered_states_are_joined_once() -> None:
    branches = ConvolutionBranches(H, K)
    z, block = field(branches.operators)
    states = LayerInput(z, block, branches)
    assert states.own.equal(z[:2])
    torch.testing.assert_close(states.gathered.neighbours, multiply(block.matrices[SYMMETRIC], z))
    joined = states.gathered.joined
    assert joined.equal(torch.cat([states.gathered.neighbours, states.own], dim=1))
    assert states.gathered.joined is joined


def test_each_module_gets_its_projection() -> None:
    branches = AttentionBranches(H, K)
    estimator = EnvironmentEstimator(H, K, "graph", operator=SYMMETRIC)
    z, block = field((*branches.operators, SYMMETRIC))
    states = LayerInput(z, block, branches, [estimator])
    assert states.own.equal(z[:2])
    for module in (branches, estimator):
        torch.testing.assert_close(states.projected(module), z @ module.projection())


def test_modules_without_projection_have_no_projected_states() -> None:
    branches, estimator = ConvolutionBranches(H, K), EnvironmentEstimator(H, K, "graph")
    z, block = field(branches.operators)
    states = LayerInput(z, block, branches, [estimator])
    for module in (branches, estimator):
        with pytest.raises(KeyError):
            states.projected(module)

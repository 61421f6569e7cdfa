from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional as F
from torch_geometric.nn import SAGEConv

from canet.nn import CaNet, Graph
from canet.nn.backbones.sage import MeanBranches
from tests.support.layers import ALL, directions, fields, layer
from tests.support.networks import EDGES, HIDDEN, NUM_CLASSES, NUM_FEATURES, NUM_NODES, predict

K = 3


def slow_layer(branches: MeanBranches, z: Tensor, e: Tensor, nodes: list[int] = ALL) -> Tensor:
    """The layer's equation for some nodes, one neighbour and branch at a time."""
    edges = (EDGES if branches.direction == "along" else EDGES.flip(0)).T.tolist()
    rows = []
    for u, shares in zip(nodes, e, strict=True):
        neighbours = [source for source, target in edges if target == u]
        mean = torch.zeros(HIDDEN)
        for v in neighbours:
            mean = mean + z[v] / len(neighbours)
        total = z[u]
        for share, weight in zip(shares, branches.weight, strict=True):
            total = total + share * (mean @ weight[:HIDDEN] + z[u] @ weight[HIDDEN:])
        rows.append(total.clamp(min=0))
    return torch.stack(rows)


@directions
@fields
def test_layer_follows_its_equation(direction: str, nodes: list[int]) -> None:
    branches = MeanBranches(HIDDEN, K, direction)
    z, e = torch.randn(NUM_NODES, HIDDEN), torch.rand(len(nodes), K)
    torch.testing.assert_close(layer(branches, z, e, nodes), slow_layer(branches, z, e, nodes))


@directions
@fields
def test_layer_passes_gradcheck(direction: str, nodes: list[int]) -> None:
    branches = MeanBranches(3, 2, direction)
    z, e = torch.randn(NUM_NODES, 3).requires_grad_(), torch.rand(len(nodes), 2).requires_grad_()
    # gradcheck perturbs its inputs in place, so pass the parameters themselves.
    assert gradcheck(lambda *_: layer(branches, z, e, nodes), (z, e, *branches.parameters()))


def test_a_node_without_neighbours_has_zeros_for_their_mean() -> None:
    branches, z = MeanBranches(HIDDEN, 1), torch.randn(NUM_NODES, HIDDEN)
    block = Graph(EDGES, NUM_NODES, branches.operators).block
    for u in (8, 9):
        expected = F.relu(z[u] @ branches.weight[0, HIDDEN:] + z[u])
        torch.testing.assert_close(branches.plain(z, block)[u], expected)


@directions
def test_one_branch_is_the_layer_of_pyg_with_a_residual_link(direction: str) -> None:
    branches = MeanBranches(HIDDEN, 1, direction)
    z = torch.randn(NUM_NODES, HIDDEN).requires_grad_()
    conv = SAGEConv(HIDDEN, HIDDEN, aggr="mean", bias=False)
    with torch.no_grad():
        conv.lin_l.weight.copy_(branches.weight[0, :HIDDEN].T)
        conv.lin_r.weight.copy_(branches.weight[0, HIDDEN:].T)
    ours = branches.plain(z, Graph(EDGES, NUM_NODES, branches.operators).block)
    theirs = F.relu(conv(z, EDGES if direction == "along" else EDGES.flip(0)) + z)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours, slow_layer(branches, z, torch.ones(NUM_NODES, 1)))
    target = torch.randn_like(z)
    torch.testing.assert_close(*(torch.autograd.grad(out, z, target) for out in (ours, theirs)))


def test_initial_weights_are_within_their_bound() -> None:
    weight = MeanBranches(16, K).weight
    assert weight.shape == (K, 32, 16)
    assert 0.9 / 4 < weight.abs().max() <= 1 / 4


def test_every_branch_learns() -> None:
    model = CaNet(NUM_FEATURES, NUM_CLASSES, backbone="sage", hidden=HIDDEN)
    logits = predict(model, torch.randn(NUM_NODES, NUM_FEATURES)).logits
    F.cross_entropy(logits, torch.arange(NUM_NODES) % NUM_CLASSES).backward()
    assert all((parameter.grad != 0).any() for parameter in model.parameters())
    for branches in model.branches:
        assert (branches.weight.grad != 0).flatten(1).any(dim=1).all()

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn import functional as F
from torch_geometric.nn import GINConv

from canet.nn import CaNet, Graph
from canet.nn.backbones.gin import IsomorphismBranches
from tests.support.layers import ALL, directions, fields, layer
from tests.support.networks import EDGES, HIDDEN, NUM_CLASSES, NUM_FEATURES, NUM_NODES, predict

M = TypeVar("M", bound=nn.Module)
K = 3


def randomised(module: M) -> M:
    """The same with random biases and epsilons, which start at zero."""
    for name, parameter in module.named_parameters():
        if name.endswith(("bias", "epsilon")):
            nn.init.normal_(parameter)
    return module


def slow_layer(
    branches: IsomorphismBranches, z: Tensor, e: Tensor, nodes: list[int] = ALL
) -> Tensor:
    """The layer's equation for some nodes, one neighbour and branch at a time."""
    edges = (EDGES if branches.direction == "along" else EDGES.flip(0)).T.tolist()
    rows = []
    for u, shares in zip(nodes, e, strict=True):
        total = z[u]
        for k, share in enumerate(shares):
            inputs = (1 + branches.epsilon[k]) * z[u]
            for source, target in edges:
                if target == u:
                    inputs = inputs + z[source]
            inside = (inputs @ branches.first[k] + branches.first_bias[k]).clamp(min=0)
            total = total + share * (inside @ branches.second[k] + branches.second_bias[k])
        rows.append(total.clamp(min=0))
    return torch.stack(rows)


@directions
@fields
def test_layer_follows_its_equation(direction: str, nodes: list[int]) -> None:
    branches = randomised(IsomorphismBranches(HIDDEN, K, direction))
    z, e = torch.randn(NUM_NODES, HIDDEN), torch.rand(len(nodes), K)
    torch.testing.assert_close(layer(branches, z, e, nodes), slow_layer(branches, z, e, nodes))


@directions
@fields
def test_layer_passes_gradcheck(direction: str, nodes: list[int]) -> None:
    branches = randomised(IsomorphismBranches(3, 2, direction))
    z, e = torch.randn(NUM_NODES, 3).requires_grad_(), torch.rand(len(nodes), 2).requires_grad_()
    # gradcheck perturbs its inputs in place, so pass the parameters themselves.
    assert gradcheck(lambda *_: layer(branches, z, e, nodes), (z, e, *branches.parameters()))


@directions
def test_one_branch_is_the_layer_of_pyg_with_a_residual_link(direction: str) -> None:
    branches = randomised(IsomorphismBranches(HIDDEN, 1, direction))
    z = torch.randn(NUM_NODES, HIDDEN).requires_grad_()
    maps = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
    conv = GINConv(nn.Sequential(maps[0], nn.ReLU(), maps[1]), eps=branches.epsilon.item())
    with torch.no_grad():
        for linear, name in zip(maps, ("first", "second"), strict=True):
            linear.weight.copy_(branches.get_parameter(name)[0].T)
            linear.bias.copy_(branches.get_parameter(f"{name}_bias")[0])
    ours = branches.plain(z, Graph(EDGES, NUM_NODES, branches.operators).block)
    theirs = F.relu(conv(z, EDGES if direction == "along" else EDGES.flip(0)) + z)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours, slow_layer(branches, z, torch.ones(NUM_NODES, 1)))
    target = torch.randn_like(z)
    torch.testing.assert_close(*(torch.autograd.grad(out, z, target) for out in (ours, theirs)))


def test_initial_weights_are_within_their_bound_and_the_others_zero() -> None:
    branches = IsomorphismBranches(16, K)
    for weight in (branches.first, branches.second):
        assert weight.shape == (K, 16, 16)
        assert 0.9 / 4 < weight.abs().max() <= 1 / 4
    assert not branches.first.equal(branches.second)
    for zeros in (branches.first_bias, branches.second_bias, branches.epsilon):
        assert not zeros.any()


def test_every_branch_learns() -> None:
    model = CaNet(NUM_FEATURES, NUM_CLASSES, backbone="gin", hidden=HIDDEN)
    logits = predict(model, torch.randn(NUM_NODES, NUM_FEATURES)).logits
    F.cross_entropy(logits, torch.arange(NUM_NODES) % NUM_CLASSES).backward()
    assert all((parameter.grad != 0).any() for parameter in model.parameters())
    for branches in model.branches:
        for parameter in branches.parameters():
            assert (parameter.grad != 0).view(K, -1).any(dim=1).all()

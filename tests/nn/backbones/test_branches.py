"""Layers of the backbones compared with their equations, one node and branch at a time, and PyG.

GCN and GAT are also in tests/nn/test_dense_oracle.py; the Transformer has its own file.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from canet.nn import BACKBONES
from tests.support.layers import convolved, directions, fields, layer, read_by, slow_layer
from tests.support.networks import (
    HIDDEN,
    NUM_NODES,
)

K = 3


def new(backbone: str, hidden: int = HIDDEN, k: int = K, direction: str = "along") -> Any:
    """Branches with random biases and epsilons, which start at zero."""
    branches = BACKBONES[backbone].branches(hidden, k, direction)  # type: ignore[arg-type]
    for name, parameter in branches.named_parameters():
        if name.endswith(("bias", "epsilon")):
            nn.init.normal_(parameter)
    return branches


def gcn(branches: Any, k: int, u: int, z: Tensor) -> Tensor:
    return torch.cat([convolved(branches, u, z), z[u]]) @ branches.weight[k]


def sage(branches: Any, k: int, u: int, z: Tensor) -> Tensor:
    read = read_by(u, branches.direction)
    mean = sum((z[v] / len(read) for v in read), torch.zeros_like(z[u]))
    return torch.cat([mean, z[u]]) @ branches.weight[k]


def gin(branches: Any, k: int, u: int, z: Tensor) -> Tensor:
    inputs = (1 + branches.epsilon[k]) * z[u]
    for v in read_by(u, branches.direction):
        inputs = inputs + z[v]
    inside = (inputs @ branches.first[k] + branches.first_bias[k]).clamp(min=0)
    return inside @ branches.second[k] + branches.second_bias[k]


def mlp(branches: Any, k: int, u: int, z: Tensor) -> Tensor:
    return z[u] @ branches.weight[k]


def decoupled(branches: Any, k: int, u: int, z: Tensor) -> Tensor:
    return (z[u] + convolved(branches, u, z)) / 2 @ branches.weight[k]


EQUATIONS: dict[str, Callable[[Any, int, int, Tensor], Tensor]] = {
    equation.__name__: equation for equation in (gcn, sage, gin, mlp, decoupled)
}
every_equation = pytest.mark.parametrize("backbone", EQUATIONS)


@every_equation
@directions
@fields
def test_layer_follows_its_equation(backbone: str, direction: str, nodes: list[int]) -> None:
    branches = new(backbone, direction=direction)
    z, e = torch.randn(NUM_NODES, HIDDEN), torch.rand(len(nodes), K)
    ours = layer(branches, z, e, nodes)
    torch.testing.assert_close(ours, slow_layer(EQUATIONS[backbone], branches, z, e, nodes))


@every_equation
@directions
@fields
def test_layer_passes_gradcheck(backbone: str, direction: str, nodes: list[int]) -> None:
    branches = new(backbone, 3, 2, direction)
    z, e = torch.randn(NUM_NODES, 3).requires_grad_(), torch.rand(len(nodes), 2).requires_grad_()
    # gradcheck perturbs its inputs in place, so pass the parameters themselves.
    inputs = z, e, *branches.parameters()
    assert gradcheck(lambda *_: layer(branches, z, e, nodes), inputs, fast_mode=True)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_initial_weights_are_within_their_bounds(backbone: str) -> None:
    branches = BACKBONES[backbone].branches(16, K)
    for name, parameter in branches.named_parameters():
        if name in ("first_bias", "second_bias", "epsilon"):
            assert not parameter.any(), name
        else:
            attention = math.sqrt(2) * math.sqrt(6 / (2 * 16 + K))
            bound = attention if name.startswith("attention") else 1 / 4
            assert 0.8 * bound < parameter.abs().max() <= bound, name

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GraphConv

from canet.errors import InputError
from canet.nn import CaNet, Graph, Operator
from canet.nn.backbones.gat import NEGATIVE_SLOPE
from tests.support.networks import (
    EDGES,
    HIDDEN,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
    predict,
)

K = 3


def make(num_layers: int = 2, num_environments: int = K, **options: object) -> CaNet:
    return CaNet(
        NUM_FEATURES,
        NUM_CLASSES,
        hidden=HIDDEN,
        num_layers=num_layers,
        num_environments=num_environments,
        **options,  # type: ignore[arg-type]
    )


def features() -> Tensor:
    return torch.randn(NUM_NODES, NUM_FEATURES)


@pytest.mark.parametrize(
    ("backbone", "names"),
    [
        ("gcn", ["branches.0.weight", "estimators.0.linear.weight", "phi_in.bias"]),
        ("gat", ["branches.1.weight", "branches.0.attention_dst", "branches.0.attention_src"]),
    ],
)
def test_gradients_pass_gradcheck(backbone: str, names: list[str]) -> None:
    model = make(backbone=backbone, estimator="graph", num_environments=2).eval()
    x, blocks = features(), Graph(EDGES, NUM_NODES, model.operators).whole(2).blocks

    def logits(*values: Tensor) -> Tensor:
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, parameters, (x, blocks)).logits

    assert torch.autograd.gradcheck(
        logits, tuple(model.get_parameter(name).detach().requires_grad_() for name in names)
    )


# One branch ---------------------------------------------------------------------------------------


def test_one_environment_is_a_plain_convolution_with_a_residual_link() -> None:
    model, x = make(num_environments=1, learned_environment=False), features()
    degree = torch.bincount(EDGES[1], minlength=NUM_NODES).double()
    product = degree[EDGES[0]] * degree[EDGES[1]]
    edge_weight = torch.where(product > 0, product.rsqrt(), 0.0)
    z = F.relu(model.phi_in(x))
    for branches in model.branches:
        conv = GraphConv(HIDDEN, HIDDEN, bias=False)
        with torch.no_grad():
            conv.lin_rel.weight.copy_(branches.weight[0, :HIDDEN].T)
            conv.lin_root.weight.copy_(branches.weight[0, HIDDEN:].T)
        z = F.relu(conv(z, EDGES, edge_weight) + z)
    torch.testing.assert_close(predict(model, x).logits, model.phi_out(z))


def test_one_environment_is_a_plain_attention_network_with_a_residual_link() -> None:
    model = make(num_environments=1, learned_environment=False, backbone="gat")
    x = features()
    z = F.relu(model.phi_in(x))
    for branches in model.branches:
        conv = GATConv(HIDDEN, HIDDEN, heads=1, bias=False, negative_slope=NEGATIVE_SLOPE)
        with torch.no_grad():
            conv.lin.weight.copy_(branches.weight[0].T)
            conv.att_dst.copy_(branches.attention_dst[None])
            conv.att_src.copy_(branches.attention_src[None])
        z = F.relu(conv(z, EDGES) + z)
    torch.testing.assert_close(predict(model, x).logits, model.phi_out(z))


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_one_learned_environment_is_the_same_as_none(backbone: str) -> None:
    learned = make(num_environments=1, backbone=backbone)
    plain = make(num_environments=1, backbone=backbone, learned_environment=False)
    plain.load_state_dict(learned.state_dict(), strict=False)
    x = features()
    torch.testing.assert_close(predict(learned, x).logits, predict(plain, x).logits)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_equal_branches_are_one_branch(backbone: str) -> None:
    several = make(backbone=backbone)
    single = make(backbone=backbone, num_environments=1, learned_environment=False)
    with torch.no_grad():
        for branches in several.branches:
            for parameter in branches.parameters():
                parameter.copy_(parameter[:1].expand_as(parameter).clone())
    first = {
        name: value[:1] if name.startswith("branches") else value
        for name, value in several.state_dict().items()
        if not name.startswith("estimators")
    }
    single.load_state_dict(first)
    x = features()
    torch.testing.assert_close(predict(several, x).logits, predict(single, x).logits)


# Ablations ----------------------------------------------------------------------------------------


def test_estimator_shares_a_symmetric_propagation_and_else_has_one_along_the_edges() -> None:
    against = Operator("symmetric", "against")
    assert make(estimator="graph", direction="against").operators == (against,)
    assert make(estimator="node", propagation="sum").operators == (Operator("sum"),)
    assert make(estimator="graph", propagation="sum", direction="against").operators == (
        Operator("sum", "against"),
        Operator("symmetric", "along"),
    )
    assert make(estimator="graph", backbone="gat", learned_environment=False).operators == (
        Operator("attention"),
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("estimator", "edge"),
        ("norm", "batch"),
        ("direction", "up"),
        ("propagation", "mean"),
        ("num_layers", 0),
        ("num_environments", 0),
    ],
)
def test_invalid_options_are_rejected(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=option):
        CaNet(NUM_FEATURES, NUM_CLASSES, **{option: value})

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GraphConv

from canet.errors import InputError
from canet.nn import CaNet, Operator
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

from __future__ import annotations

import torch
from torch.autograd import gradcheck

from canet.nn import BACKBONES, CaNet
from canet.nn.backbones.mlp import LinearBranches
from tests.support.networks import (
    HIDDEN,
    NO_EDGES,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
    apply,
    predict,
)

K = 3


def test_layer_is_that_of_a_loop_over_nodes_and_branches() -> None:
    branches = LinearBranches(HIDDEN, K)
    z, e = torch.randn(NUM_NODES, HIDDEN), torch.rand(NUM_NODES, K)
    rows = []
    for own, shares in zip(z, e, strict=True):
        total = own
        for share, weight in zip(shares, branches.weight, strict=True):
            total = total + share * (own @ weight)
        rows.append(total.clamp(min=0))
    torch.testing.assert_close(apply(branches, z, e), torch.stack(rows))


def test_layer_passes_gradcheck() -> None:
    branches = LinearBranches(3, 2)
    z, e = torch.randn(NUM_NODES, 3).requires_grad_(), torch.rand(NUM_NODES, 2).requires_grad_()
    # gradcheck perturbs its inputs in place, so pass the parameters themselves.
    assert gradcheck(lambda *_: apply(branches, z, e), (z, e, *branches.parameters()))


def test_edges_are_not_used() -> None:
    x = torch.randn(NUM_NODES, NUM_FEATURES)
    plain = BACKBONES["mlp"].plain(NUM_FEATURES, NUM_CLASSES, hidden=HIDDEN)
    canet = CaNet(NUM_FEATURES, NUM_CLASSES, hidden=HIDDEN, backbone="mlp", estimator="node").eval()
    for model in (plain, canet):
        assert model.operators == ()
        torch.testing.assert_close(predict(model, x).logits, predict(model, x, NO_EDGES).logits)

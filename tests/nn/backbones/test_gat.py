from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from torch_geometric.nn import GATConv

from canet.nn.backbones.gat import NEGATIVE_SLOPE, AttentionBranches
from tests.support.networks import EDGES, NUM_NODES, apply

H, K = 4, 3


def gat_conv(branches: AttentionBranches) -> GATConv:
    """PyG's attention with one head per branch, holding the same weights."""
    conv = GATConv(H, H, heads=K, concat=True, bias=False, negative_slope=NEGATIVE_SLOPE)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.cat([weight.T for weight in branches.weight]))
        conv.att_dst.copy_(branches.attention_dst[None])
        conv.att_src.copy_(branches.attention_src[None])
    return conv


@pytest.mark.parametrize("k", range(K))
def test_one_hot_environment_picks_one_head_of_gat_conv(k: int) -> None:
    branches, z = AttentionBranches(H, K), torch.randn(NUM_NODES, H)
    e = F.one_hot(torch.full((NUM_NODES,), k), K).double()
    heads = gat_conv(branches)(z, EDGES).view(NUM_NODES, K, H)
    ours = apply(branches, z, e)
    torch.testing.assert_close(ours, F.relu(heads[:, k] + z))


def test_mixture_of_attention_branches_and_its_gradients_are_those_of_mixed_heads() -> None:
    branches, e = AttentionBranches(H, K), torch.rand(NUM_NODES, K)
    conv = gat_conv(branches)
    target = torch.randn(NUM_NODES, H)
    z = torch.randn(NUM_NODES, H).requires_grad_()
    z_conv = z.detach().clone().requires_grad_()
    ours = apply(branches, z, e)
    mixed = (conv(z_conv, EDGES).view(NUM_NODES, K, H) * e[..., None]).sum(dim=1)
    theirs = F.relu(mixed + z_conv)
    torch.testing.assert_close(ours, theirs)
    (ours * target).sum().backward()
    (theirs * target).sum().backward()
    torch.testing.assert_close(z.grad, z_conv.grad)
    weight_grad = conv.lin.weight.grad.view(K, H, H).transpose(1, 2)
    torch.testing.assert_close(branches.weight.grad, weight_grad)
    torch.testing.assert_close(branches.attention_dst.grad, conv.att_dst.grad[0])
    torch.testing.assert_close(branches.attention_src.grad, conv.att_src.grad[0])


def test_initial_weights_stay_within_their_bounds() -> None:
    hidden = 16
    attention = AttentionBranches(hidden, K)
    assert 0.9 / math.sqrt(hidden) < attention.weight.abs().max() <= 1 / math.sqrt(hidden)
    xavier = math.sqrt(2) * math.sqrt(6 / (2 * hidden + K))
    for vector in (attention.attention_dst, attention.attention_src):
        assert 0.8 * xavier < vector.abs().max() <= xavier

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from canet.nn import Operator
from canet.nn.backbones.gat import NEGATIVE_SLOPE
from canet.nn.operations.attention import AttentionWeights, mix_attention
from canet.nn.operations.mixtures import mix_branches
from canet.nn.sparse_matrix import Pattern
from tests.support.networks import EDGES, NUM_NODES, attend_each, operator_matrix

H, K = 4, 3


def neighbourhood(edges: Tensor = EDGES, num_nodes: int = NUM_NODES) -> Pattern:
    return operator_matrix(edges, num_nodes, Operator("attention")).pattern


@pytest.mark.parametrize("inputs", [(5, 2), (5, K, 2)], ids=["shared", "an input each"])
def test_mixing_branches_is_the_sum_of_weighted_maps(inputs: tuple[int, ...]) -> None:
    x, weight, e = torch.randn(inputs), torch.randn(K, 2, H), torch.rand(5, K)
    mixed, each = mix_branches(x, weight, e), x.view(5, -1, 2).expand(5, K, 2)
    for u in range(5):
        expected = sum(e[u, k] * (weight[k].T @ each[u, k]) for k in range(K))
        torch.testing.assert_close(mixed[u], expected)


@pytest.mark.parametrize("shape", [(4, 2), (4, K, 2)])
def test_mixing_branches_passes_gradcheck(shape: tuple[int, ...]) -> None:
    inputs = (
        torch.randn(shape, requires_grad=True),
        torch.randn(K, 2, H, requires_grad=True),
        torch.rand(4, K, requires_grad=True),
    )
    assert gradcheck(mix_branches, inputs)


@pytest.mark.parametrize("learned", [False, True])
def test_mixing_keeps_the_branches_only_for_the_gradient_of_their_weights(learned: bool) -> None:
    inputs, weight = torch.randn(5, 2), torch.randn(K, 2, H, requires_grad=True)
    e = torch.rand(5, K, requires_grad=learned)
    kept: list[torch.Size] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: (kept.append(tensor.shape), tensor)[1], lambda tensor: tensor
    ):
        mixed = mix_branches(inputs, weight, e)
    assert ((5, K, H) in kept) == learned
    mixed.sum().backward()
    expected = torch.einsum("ni,nk->ki", inputs, e.detach()).unsqueeze(2).expand(K, 2, H)
    torch.testing.assert_close(weight.grad, expected)


def test_attention_weights_are_a_softmax_over_each_neighbourhood() -> None:
    pattern = neighbourhood()
    score_dst, score_src = torch.randn(NUM_NODES, K), torch.randn(NUM_NODES, K)
    weights = AttentionWeights.apply(score_dst, score_src, pattern, NEGATIVE_SLOPE)
    for u in range(NUM_NODES):
        entries = (pattern.row == u).nonzero().flatten().tolist()
        for k in range(K):
            scores = [float(score_dst[u, k] + score_src[pattern.col[i], k]) for i in entries]
            terms = [math.exp(s if s > 0 else NEGATIVE_SLOPE * s) for s in scores]
            for entry, term in zip(entries, terms, strict=True):
                assert weights[entry, k].item() == pytest.approx(term / sum(terms))


def test_attention_weights_survive_scores_that_overflow_an_exponential() -> None:
    pattern = neighbourhood()
    scores = (1e6 * torch.randn(NUM_NODES, K)).requires_grad_()
    weights = AttentionWeights.apply(scores, scores, pattern, NEGATIVE_SLOPE)
    weights.square().sum().backward()
    assert weights.isfinite().all()
    assert scores.grad.isfinite().all()
    torch.testing.assert_close(pattern.sum_rows(weights), torch.ones(NUM_NODES, K))


def test_attend_sums_the_states_of_neighbours_with_each_branchs_weights() -> None:
    pattern, z = neighbourhood(), torch.randn(NUM_NODES, H)
    score_dst, score_src = torch.randn(NUM_NODES, K), torch.randn(NUM_NODES, K)
    gathered = attend_each(pattern, z, score_dst, score_src)
    weights = AttentionWeights.apply(score_dst, score_src, pattern, NEGATIVE_SLOPE)
    for u in range(NUM_NODES):
        for k in range(K):
            entries = (pattern.row == u).nonzero().flatten()
            expected = sum(weights[i, k] * z[pattern.col[i]] for i in entries)
            torch.testing.assert_close(gathered[u, k], expected)


def test_mixed_attention_and_its_gradients_are_those_of_attending_and_mixing() -> None:
    readers = NUM_NODES - 2
    matrix = operator_matrix(EDGES, NUM_NODES, Operator("attention"))
    pattern = matrix.select_rows(torch.arange(readers)).pattern
    sizes = (NUM_NODES, H), (readers, K), (NUM_NODES, K), (K, H, H), (readers, K)
    inputs = [torch.randn(size, requires_grad=True) for size in sizes]

    def composed(z: Tensor, dst: Tensor, src: Tensor, weight: Tensor, e: Tensor) -> Tensor:
        return (mix_branches(attend_each(pattern, z, dst, src), weight, e) + z[:readers]).relu()

    target = torch.randn(readers, H)
    mixed, expected = mix_attention(pattern, *inputs, NEGATIVE_SLOPE), composed(*inputs)
    torch.testing.assert_close(mixed, expected)
    pairs = zip(
        *(torch.autograd.grad(out, inputs, target) for out in (mixed, expected)), strict=True
    )
    for ours, oracle in pairs:
        torch.testing.assert_close(ours, oracle)
    assert gradcheck(lambda *tensors: mix_attention(pattern, *tensors, NEGATIVE_SLOPE), inputs)
    with torch.no_grad():
        assert mix_attention(pattern, *inputs, NEGATIVE_SLOPE).equal(mixed)

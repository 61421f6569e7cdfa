"""Gradients with sampled neighbours."""

import pytest
import torch

from canet.nn import GCN, NormalisedGraph
from experiments.sampled_gradients import gradients, method_of, random_graph


def test_gradients_of_a_linear_model_are_unbiased() -> None:
    """With one layer and a linear loss, nothing is nonlinear."""
    edges, x, _ = random_graph()
    torch.manual_seed(0)
    model = GCN(x.shape[1], 3, hidden=4, num_layers=1).double()
    graph = NormalisedGraph(edges, len(x), model.operators, dtype=torch.double)
    weights, nodes = torch.randn(len(x), 3, dtype=torch.double), torch.arange(len(x))

    def gradient(fanout: int, seed: int) -> torch.Tensor:
        field = graph.sampled_field(nodes, (fanout,), seed)
        loss = (weights * model(x[field.nodes], field.blocks).logits).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])

    draws = torch.stack([gradient(4, seed) for seed in range(200)])
    error = draws.std(dim=0) / 200**0.5
    assert ((draws.mean(dim=0) - gradient(-1, 0)).abs() <= 4.5 * error + 1e-9).all()
    assert (error > 0).any()


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "gin", "decoupled"])
def test_the_bias_shrinks_with_the_number_of_neighbours(backbone: str) -> None:
    found = gradients(method_of("erm", backbone), [(2, 2), (20, 20)], num_draws=25)
    (few, few_error), (many, _) = found.values()
    assert many < few / 2
    assert few > 3 * few_error  # so it is not noise

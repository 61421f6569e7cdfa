from typing import Any

import pytest
import torch

from canet.methods import BACKBONES, Batch, InterventionSettings
from canet.methods.erm import ERM
from canet.nn import Graph

N = 6
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])
Y = torch.tensor([0, 1, 2, 2])


def make(backbone: Any = "gcn", **settings: Any) -> tuple[ERM, Batch]:
    """A method in prediction mode (no dropout), and four of six nodes."""
    torch.manual_seed(0)
    method = ERM(
        InterventionSettings(hidden=8, **settings), backbone, num_features=5, num_classes=3
    )
    graph = Graph(EDGES, N, method.model.operators)
    field = graph.receptive_field(torch.arange(4), method.model.num_layers)
    return method.eval(), Batch(torch.randn(N, 5)[field.nodes], field.blocks, Y)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_loss_is_the_mean_negative_log_likelihood_of_the_labels(backbone: str) -> None:
    method, batch = make(backbone)
    probability = method.predict(batch).detach().softmax(dim=1)
    expected = -sum(float(probability[i, y].log()) for i, y in enumerate(Y.tolist())) / 4
    assert method.loss(batch).item() == pytest.approx(expected, rel=1e-6)


def test_binary_loss_is_the_mean_over_nodes_and_one_hot_columns() -> None:
    method, batch = make(loss="binary_cross_entropy")
    probability = method.predict(batch).detach().sigmoid()
    expected = 0.0
    for i, y in enumerate(Y.tolist()):
        for c in range(3):
            p = float(probability[i, c])
            expected -= float(torch.tensor(p if c == y else 1 - p, dtype=torch.double).log()) / 12
    assert method.loss(batch).item() == pytest.approx(expected, rel=1e-6)


def test_one_step_against_the_gradient_lowers_the_loss() -> None:
    method, batch = make()
    before = method.loss(batch)
    before.backward()
    with torch.no_grad():
        for parameter in method.parameters():
            assert parameter.grad is not None
            parameter -= 0.1 * parameter.grad
    assert method.loss(batch) < before


def test_loss_is_the_mean_of_the_node_losses() -> None:
    method, batch = make()
    losses = method.node_losses(method.predict(batch), batch.y)
    assert losses.shape == (4,)
    torch.testing.assert_close(method.loss(batch), losses.mean())


def test_learning_rate_is_that_of_the_settings() -> None:
    method, _ = make(learning_rate=0.3)
    (group,) = method.parameter_groups()
    assert group["lr"] == 0.3


def test_settings_reach_the_model() -> None:
    method, _ = make(num_layers=3, dropout=0.4, direction="against")
    assert method.model.num_layers == 3
    assert method.model.dropout == 0.4
    assert method.model.phi_in.weight.shape == (8, 5)
    assert [operator.direction for operator in method.model.operators] == ["against"]

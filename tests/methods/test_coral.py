from itertools import combinations

import numpy as np
import pytest
import torch

from canet.methods.coral import CORAL
from tests.support.labelled import ENVIRONMENT, make


def slow_distance(z: np.ndarray, environment: np.ndarray) -> float:
    """Mean over pairs of environments of the distances of means and of covariances."""
    groups = [z[environment == e] for e in np.unique(environment)]
    width = z.shape[1]
    covariances = [
        np.cov(group, rowvar=False) if len(group) > 1 else np.zeros((width, width))
        for group in groups
    ]
    pairs = []
    for i, j in combinations(range(len(groups)), 2):
        mean = ((groups[i].mean(axis=0) - groups[j].mean(axis=0)) ** 2).mean()
        pairs.append(mean + ((covariances[i] - covariances[j]) ** 2).mean())
    return float(np.mean(pairs))


def test_distance_by_hand() -> None:
    """Means 1 and 3, variances 2 and 0 (a single node): 2² + 2²."""
    method, _ = make(CORAL, environment=torch.tensor([0, 0, 1, 1, 0, 1, 0]))
    z = torch.tensor([[0.0], [3.0], [2.0]], dtype=torch.double)
    assert method.distance(z, torch.tensor([0, 1, 0])).item() == pytest.approx(8)


@pytest.mark.parametrize("ids", [[0, 1, 0, 1, 0, 1, 1, 0], [2, 0, 1, 2, 3, 2, 0, 0]], ids=str)
def test_distance_is_the_mean_over_pairs_of_environments(ids: list[int]) -> None:
    method, _ = make(CORAL)
    method.num_environment_labels = max(ids) + 1
    z = torch.randn(len(ids), 5, dtype=torch.double)
    expected = slow_distance(z.numpy(), np.array(ids))
    assert method.distance(z, torch.tensor(ids)).item() == pytest.approx(expected)


def test_loss_is_supervision_and_the_weighted_distance() -> None:
    method, batch = make(CORAL, penalty_weight=3.0)
    prediction = method.model(batch.x, batch.blocks)
    supervised = method.node_losses(prediction.logits, batch.y).mean().item()
    distance = slow_distance(prediction.embedding.detach().numpy(), ENVIRONMENT.numpy())
    assert distance > 0
    assert method.loss(batch).item() == pytest.approx(supervised + 3 * distance)

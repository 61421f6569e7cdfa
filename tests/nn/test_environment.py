import math

import pytest
import torch
from torch import Tensor

from canet.nn import EnvironmentEstimator
from canet.nn.environment import draw
from canet.nn.operations import Gathered

N, H, K = 6, 4, 3


def estimate(kind: str, tau: float = 1.0, training: bool = True) -> tuple:
    """An estimator, its inputs and its output."""
    estimator = EnvironmentEstimator(H, K, kind, tau).train(training)
    inputs = torch.randn(2 if kind == "graph" else 1, N, H)
    return estimator, inputs, estimator(read(*inputs))


def read(own: Tensor, neighbours: Tensor | None = None) -> Tensor | Gathered:
    return own if neighbours is None else Gathered(neighbours, own)


kinds = pytest.mark.parametrize("kind", ["node", "graph"])


def test_training_draws_new_noise_in_every_call() -> None:
    estimator, inputs, environment = estimate("node")
    assert not estimator(read(*inputs)).sample.equal(environment.sample)


def test_noise_has_the_mean_and_spread_of_a_standard_gumbel() -> None:
    noise = -draw(torch.empty(100_000)).log()
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert noise.std().item() == pytest.approx(math.pi / math.sqrt(6), abs=0.02)


@kinds
def test_total_expected_log_is_that_of_the_posteriors_under_the_sample(kind: str) -> None:
    _, _, environment = estimate(kind)
    log_posterior, e = environment.log_posterior.tolist(), environment.sample.tolist()
    for n in (2, N):
        slow = sum(e[v][k] * log_posterior[v][k] for v in range(n) for k in range(K))
        total = environment.first(n).total_expected_log()
        assert total.item() == pytest.approx(slow, rel=1e-5)
        given = environment._replace(expected_log=torch.arange(N, dtype=torch.float))
        assert given.first(n).total_expected_log().item() == sum(range(n))


def test_extreme_logits_stay_finite() -> None:
    estimator = EnvironmentEstimator(1, 2, "node", tau=0.1)
    with torch.no_grad():
        estimator.linear.weight.copy_(torch.tensor([[1e4], [-1e4]]))
    own = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    environment = estimator(own)
    (environment.sample * environment.log_posterior).sum().backward()
    assert environment.sample.isfinite().all()
    assert environment.log_posterior.isfinite().all()
    assert own.grad.isfinite().all()

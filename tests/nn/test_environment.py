import math

import pytest
import torch
from torch import Tensor

from canet.nn import EnvironmentEstimator
from canet.nn import environment as environment_module
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


def softmax_by_hand(logits: list[float]) -> Tensor:
    total = sum(math.exp(logit) for logit in logits)
    return torch.tensor([math.exp(logit) / total for logit in logits])


kinds = pytest.mark.parametrize("kind", ["node", "graph"])


def test_node_posterior_reads_the_node_alone_with_a_bias() -> None:
    estimator, (own,), environment = estimate("node")
    weight, bias = estimator.linear.weight.detach(), estimator.linear.bias.detach()
    for v in range(N):
        logits = [float(weight[k] @ own[v] + bias[k]) for k in range(K)]
        torch.testing.assert_close(environment.log_posterior[v].exp(), softmax_by_hand(logits))


def test_graph_posterior_reads_neighbours_with_the_first_half_and_itself_with_the_second() -> None:
    estimator, (own, neighbours), environment = estimate("graph")
    assert estimator.linear.bias is None
    weight = estimator.linear.weight.detach()
    of_neighbours, of_self = weight[:, :H], weight[:, H:]
    for v in range(N):
        logits = [float(of_neighbours[k] @ neighbours[v] + of_self[k] @ own[v]) for k in range(K)]
        torch.testing.assert_close(environment.log_posterior[v].exp(), softmax_by_hand(logits))


@kinds
@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_sample_is_the_gumbel_softmax_of_the_log_posterior(
    kind: str, tau: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = torch.randn(N, K)
    monkeypatch.setattr(environment_module, "draw", lambda like: noise.neg().exp())
    *_, environment = estimate(kind, tau)
    for v in range(N):
        logits = ((environment.log_posterior[v] + noise[v]) / tau).tolist()
        torch.testing.assert_close(environment.sample[v], softmax_by_hand(logits))


@kinds
def test_predicting_uses_the_posterior_itself_without_noise_or_temperature(kind: str) -> None:
    estimator, inputs, environment = estimate(kind, tau=0.1, training=False)
    assert environment.sample.equal(environment.log_posterior.exp())
    assert estimator(read(*inputs)).sample.equal(environment.sample)


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

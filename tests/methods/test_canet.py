import math
from typing import Any

import pytest
import torch
from torch import Tensor

from canet.methods import Batch
from canet.methods.canet import NUM_PSEUDO_INPUTS, CaNetMethod, CaNetSettings
from canet.nn import Environment, NormalisedGraph
from canet.nn import environment as environment_module
from tests.support.precision import double_precision

N, K, H = 7, 3, 4
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 6], [1, 2, 3, 4, 5, 0, 3, 2]])
TRAIN = torch.tensor([4, 0, 2])
Y = torch.tensor([1, 0, 1])
double = pytest.fixture(autouse=True)(double_precision)


def make(backbone: Any = "gcn", **settings: Any) -> tuple[CaNetMethod, Batch]:
    """A method in training mode without dropout, and three of seven nodes."""
    chosen = {"hidden": H, "num_environments": K, "dropout": 0.0, **settings}
    method = CaNetMethod(CaNetSettings(**chosen), backbone, num_features=5, num_classes=2)
    graph = NormalisedGraph(EDGES, N, method.model.operators)
    field = graph.receptive_field(TRAIN, method.model.num_layers)
    return method, Batch(torch.randn(N, 5)[field.nodes], field.blocks, Y)


def random_environments(num_layers: int, num_nodes: int) -> list[Environment]:
    return [
        Environment(
            torch.randn(num_nodes, K).log_softmax(dim=1), torch.randn(num_nodes, K).softmax(dim=1)
        )
        for _ in range(num_layers)
    ]


def slow_divergence(environments: list[Environment], num_nodes: int, log_prior: Tensor) -> float:
    """The paper's sum over nodes, layers and environments, term by term."""
    total = 0.0
    for v in range(num_nodes):
        for layer, environment in enumerate(environments):
            for k in range(K):
                e, pi = (
                    float(environment.sample[v, k]),
                    float(environment.log_posterior[v, k].exp()),
                )
                total += e * (math.log(pi) - float(log_prior[layer, k])) / len(environments)
    return total / num_nodes


def slow_mixture_prior(method: CaNetMethod) -> Tensor:
    """log p_0 of every layer, as the mean of the posteriors of the pseudo-inputs."""
    assert method.prior is not None
    priors = []
    for layer, estimator in enumerate(method.model.estimators):
        total = torch.zeros(K)
        for u in method.prior.pseudo_inputs[layer]:
            logits = estimator.linear.weight @ u
            if estimator.linear.bias is not None:
                logits = logits + estimator.linear.bias
            total = total + logits.exp() / logits.exp().sum()
        priors.append((total / NUM_PSEUDO_INPUTS).log())
    return torch.stack(priors)


def test_divergence_is_the_papers_sum_over_the_first_nodes() -> None:
    method, _ = make(num_layers=2)
    environments = random_environments(2, 5)
    uniform = torch.full((2, K), -math.log(K))
    for num_nodes in (1, 3, 5):
        expected = slow_divergence(environments, num_nodes, uniform)
        assert method.divergence(environments, num_nodes).item() == pytest.approx(expected)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
@pytest.mark.parametrize("estimator", ["node", "graph"])
@pytest.mark.parametrize("prior", ["uniform", "mixture"])
def test_loss_is_the_papers_objective(
    backbone: str, estimator: str, prior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, batch = make(backbone, estimator=estimator, prior=prior, reg_weight=0.3)
    monkeypatch.setattr(environment_module, "draw", torch.ones_like)
    with torch.no_grad():
        loss, prediction = method.loss(batch), method.model(batch.x, batch.blocks)
        log_prior = torch.full((2, K), -math.log(K))
        if prior == "mixture":
            log_prior = slow_mixture_prior(method)
    probability = prediction.logits.softmax(dim=1)
    supervised = -sum(math.log(probability[v, y]) for v, y in enumerate(Y.tolist())) / len(Y)
    divergence = slow_divergence(list(prediction.environments), len(Y), log_prior)
    assert prediction.environments[0].sample.shape[0] > len(Y)
    assert loss.item() == pytest.approx(supervised + 0.3 * divergence)


@pytest.mark.parametrize("off", [{"prior": "none"}, {"learned_environment": False}], ids=str)
def test_without_prior_or_environments_the_loss_is_supervised(
    off: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    method, batch = make(reg_weight=5.0, **off)
    monkeypatch.setattr(environment_module, "draw", torch.ones_like)
    expected = torch.nn.functional.cross_entropy(method.predict(batch), Y)
    torch.testing.assert_close(method.loss(batch), expected)


@pytest.mark.parametrize("estimator", ["node", "graph"])
@pytest.mark.parametrize("shared", [False, True])
def test_mixture_prior_and_its_gradients_are_those_of_the_mean_posterior_of_pseudo_inputs(
    estimator: str, shared: bool
) -> None:
    method, _ = make(estimator=estimator, prior="mixture", shared_environment=shared)
    theirs = slow_mixture_prior(method)
    assert len(theirs) == (1 if shared else 2)
    assert method.prior is not None
    ours = torch.stack([method.prior(i, its) for i, its in enumerate(method.model.estimators)])
    torch.testing.assert_close(ours, theirs)
    inputs, weight = [*method.prior.parameters(), *method.model.estimators.parameters()], ours * 2
    mine, slow = (torch.autograd.grad(x, inputs, weight.detach(), True) for x in (ours, theirs))
    for got, wanted in zip(mine, slow, strict=True):
        assert (wanted != 0).any()
        torch.testing.assert_close(got, wanted)


ALL_SETTINGS = [
    {},
    {"prior": "mixture"},
    {"shared_environment": True},
    {"learned_environment": False},
    {"learned_environment": False, "prior": "mixture"},
]


@pytest.mark.parametrize("settings", ALL_SETTINGS, ids=str)
@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_every_parameter_gets_a_gradient_and_is_in_one_group(
    backbone: str, settings: dict[str, Any]
) -> None:
    method, batch = make(backbone, **settings)
    grouped = [id(p) for group in method.parameter_groups() for p in group["params"]]
    assert sorted(grouped) == sorted(map(id, method.parameters()))
    method.loss(batch).backward()
    for name, parameter in method.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad != 0).any(), name


def test_estimator_and_its_prior_learn_at_their_own_rate() -> None:
    method, _ = make(prior="mixture", learning_rate=0.01, estimator_learning_rate=0.5)
    rate = {id(p): group["lr"] for group in method.parameter_groups() for p in group["params"]}
    for name, parameter in method.named_parameters():
        own = name.startswith(("model.estimators", "prior"))
        assert rate[id(parameter)] == (0.5 if own else 0.01), name

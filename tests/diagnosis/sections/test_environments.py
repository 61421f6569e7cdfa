import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from canet.diagnosis.sections.environments import Layer, compute, distinguished, quartile
from tests.support.planted import make_context, planted, random_graph, sign_of


def layer(posterior: np.ndarray, data: Data) -> Layer:
    model = planted(sign_of(3), random_graph(n=60), posteriors=lambda _: [posterior])
    found = compute(make_context(model, data))["new"]
    assert found.number == posterior.shape[1]
    return found.layers[0]


@pytest.fixture
def data() -> Data:
    data = random_graph(n=60)
    data.environment = torch.arange(60) % 3
    data.time = np.arange(60.0)
    data.node_id = np.array([f"user {i}" for i in range(60)])
    return data


def test_a_method_that_infers_none_has_none(data: Data) -> None:
    model = planted(sign_of(3), data)
    assert compute(make_context(model, data)) == {}


def test_the_given_environments_are_recognised(data: Data) -> None:
    found = layer(np.eye(3)[np.arange(60) % 3], data)
    assert next(iter(found.agreement)) == "given environment"
    assert found.agreement["given environment"] == pytest.approx(1)
    assert abs(found.agreement["label"]) < 0.2
    assert found.best_match == "given environment"
    assert found.separates_nodes
    assert found.used == pytest.approx(3)
    assert found.distinguished == pytest.approx(3)
    assert found.mean_posterior == pytest.approx([1 / 3] * 3)


def test_time_and_degree_go_by_quarters(data: Data) -> None:
    found = layer(np.eye(4)[np.arange(60) // 15], data)
    assert found.agreement["time"] == pytest.approx(1)
    assert set(found.agreement) == {"label", "prediction", "given environment", "time", "degree"}


def test_equal_posteriors_use_all_environments_but_separate_nothing(data: Data) -> None:
    found = layer(np.full((60, 3), 1 / 3), data)
    assert found.used == pytest.approx(3)
    assert found.distinguished == pytest.approx(1)
    assert set(found.agreement.values()) == {0.0}
    assert not found.separates_nodes
    assert found.best_match is None


def test_examples_are_the_nodes_with_the_highest_posterior(data: Data) -> None:
    first = np.linspace(0, 1, 60)
    found = layer(np.stack([first, 1 - first], axis=1), data)
    assert [example.node for example in found.examples[0]] == ["user 59", "user 58", "user 57"]
    assert [example.node for example in found.examples[1]] == ["user 0", "user 1", "user 2"]
    assert found.examples[0][0].posterior == pytest.approx(1)
    assert found.examples[0][0].prediction in ("0", "1")


def test_nodes_without_label_and_environment_are_left_out(data: Data) -> None:
    del data.y
    data.environment = torch.where(torch.arange(60) < 30, torch.arange(60) % 2, -1)
    posterior = np.eye(2)[np.where(np.arange(60) < 30, np.arange(60) % 2, 0)]
    found = layer(posterior, data)
    assert found.agreement["given environment"] == pytest.approx(1)
    assert "label" not in found.agreement


def test_quarters_keep_equal_values_together() -> None:
    assert quartile(np.array([4, 1, 3, 2])).tolist() == [3, 0, 2, 1]
    assert np.unique(quartile(np.array([5, 5, 5, 5]))).size == 1


def test_information_is_that_of_a_loop() -> None:
    posterior = np.random.default_rng(0).dirichlet(np.ones(4), 30)
    mean = posterior.mean(axis=0)
    information = -sum(p * np.log(p) for p in mean)
    information += sum(p * np.log(p) for row in posterior for p in row) / 30
    assert distinguished(posterior) == pytest.approx(np.exp(information))

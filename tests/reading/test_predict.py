"""Predictions of a trained method on one graph."""

import pytest
import torch
from torch import Tensor

from canet.data.graph import Graph
from canet.errors import InputError
from canet.methods import BACKBONES, METHODS, Method
from canet.models import FittedNetwork
from canet.models.base import Reader
from canet.nn.model import Prediction
from canet.reading.prepared import PreparedGraph

N, D, C = 14, 5, 3
NODES = torch.tensor([9, 0, 13, 4])


def graph(sparse: bool = False, numbered: bool = False, seed: int = 0) -> Graph:
    """Random edges inside two halves; node 13 is isolated."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=random).relu()
    half = torch.randint(6, (2, 20), generator=random)
    edges = torch.cat([half, half.flip(1) + 6], dim=1)
    number = torch.tensor([0] * 6 + [1] * 8) if numbered else None
    return Graph(x.to_sparse_csr() if sparse else x, edges, batch=number)


def make(name: str, backbone: str) -> Method:
    torch.manual_seed(0)
    return METHODS[name](METHODS[name].settings_type(hidden=4), backbone, D, C, 2).eval()


def forward(method: Method, own: Graph, nodes: Tensor | None = None) -> Prediction:
    return Reader(FittedNetwork(method, ""), PreparedGraph(own)).read(nodes)


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", ["erm", "canet"])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("numbered", [True, False])
def test_a_pass_for_some_nodes_is_the_whole_pass_at_these_nodes(
    name: str, backbone: str, sparse: bool, numbered: bool
) -> None:
    method, own = make(name, backbone), graph(sparse, numbered)
    whole = forward(method, own)
    assert whole.logits.shape == (N, C)
    for nodes in (NODES, NODES[:1], torch.arange(N), NODES[:0]):
        some = forward(method, own, nodes)
        assert_close(some.logits, whole.logits[nodes])
        assert_close(some.embedding, whole.embedding[nodes])
        assert len(some.environments) == len(whole.environments)
        for found, of_all in zip(some.environments, whole.environments, strict=True):
            first = found.log_posterior[: nodes.numel()]
            assert_close(first, of_all.log_posterior[nodes])


@pytest.mark.parametrize("backbone", BACKBONES)
def test_single_nodes_and_permuted_graphs_are_predicted(backbone: str) -> None:
    method = make("canet", backbone)
    alone = Graph(torch.ones(1, D), torch.empty(2, 0, dtype=torch.long))
    assert forward(method, alone).logits.isfinite().all()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    own, position = graph(), torch.empty_like(order)
    position[order] = torch.arange(N)
    permuted = Graph(own.x[order], position[own.edge_index])
    assert_close(forward(method, permuted).logits, forward(method, own).logits[order])


def test_a_pass_leaves_no_gradients_and_draws_nothing() -> None:
    method = make("canet", "gcn")
    state = torch.get_rng_state()
    found = forward(method, graph())
    assert not found.logits.requires_grad
    assert not found.embedding.requires_grad
    assert torch.get_rng_state().equal(state)
    assert forward(method, graph()).logits.equal(found.logits)


def test_predictions_that_are_not_finite_are_an_error_for_the_requested_nodes() -> None:
    own, method = graph(), make("erm", "gcn")
    torch.nn.init.ones_(method.model.phi_in.weight)
    wild = Graph(own.x.clone(), own.edge_index)
    wild.x[3] = 3e38
    for nodes in (None, torch.tensor([3])):
        with pytest.raises(InputError, match="not finite"):
            forward(method, wild, nodes)
    elsewhere = torch.tensor([8, 13])
    assert forward(method, wild, elsewhere).logits.equal(forward(method, own, elsewhere).logits)


@pytest.mark.parametrize("name", ["erm", "canet"])
def test_other_features_are_read_as_in_a_graph_that_has_them(name: str) -> None:
    method, own, other = make(name, "gat"), graph(numbered=True), graph(numbered=True, seed=1)
    prepared, of_graph = PreparedGraph(own), FittedNetwork(method, "")
    found = of_graph.read(prepared.with_features(other.x)).logits
    assert found.equal(forward(method, Graph(other.x, own.edge_index, batch=own.batch)).logits)
    assert of_graph.read(prepared).logits.equal(forward(method, own).logits)

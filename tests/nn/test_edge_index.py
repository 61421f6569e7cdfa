"""Models called as PyG's: `model(x, edge_index)`."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

from canet.errors import InputError
from canet.nn import BACKBONES, CaNet, GraphModel, NormalisedGraph, SparseMatrix, normalised

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.double)
EDGES = torch.tensor([[0, 1, 2, 3, 4, 4], [1, 2, 0, 4, 3, 5]])


def models() -> list[GraphModel]:
    torch.manual_seed(0)
    plain = [backbone.plain(4, 3, hidden=8) for backbone in BACKBONES.values()]
    return [*plain, *(CaNet(4, 3, hidden=8, backbone=name) for name in BACKBONES)]


@pytest.mark.parametrize("number", range(2 * len(BACKBONES)))
def test_edges_give_the_bits_of_the_blocks(number: int) -> None:
    model = models()[number].eval()
    graph = NormalisedGraph(EDGES, 6, model.operators)
    expected = model(X, graph.whole(model.num_layers).blocks).logits
    assert torch.equal(model(X, EDGES), expected)
    sparse = SparseMatrix.from_torch(X.to_sparse_csr())
    expected = model(sparse, graph.whole(model.num_layers).blocks).logits
    assert torch.equal(model(X.to_sparse_csr(), EDGES), expected)


def test_batch_says_which_graph_a_node_is_in() -> None:
    torch.manual_seed(0)
    model = BACKBONES["transformer"].plain(4, 3, hidden=8).eval()
    one = torch.zeros(6, dtype=torch.long)
    expected = model(X, NormalisedGraph(EDGES, 6, model.operators, one).whole(2).blocks).logits
    assert torch.equal(model(X, EDGES, batch=one), expected)
    assert not torch.equal(model(X, EDGES), expected)


def test_a_graph_is_normalised_once_and_forgotten_with_its_edges() -> None:
    model = models()[0].eval()
    edges = EDGES.clone()
    before = len(normalised._graphs)
    model(X, edges)
    (kept,) = normalised._graphs[edges].values()
    model(X, edges)
    (again,) = normalised._graphs[edges].values()
    assert again[1] is kept[1]
    del edges
    assert len(normalised._graphs) == before


@pytest.mark.parametrize("how", ["in place", "numpy", "data", "inference"])
def test_edges_that_change_in_place_are_read_again(how: str) -> None:
    model = models()[0].eval()
    with torch.inference_mode(how == "inference"):
        edges = EDGES.clone()
        first = model(X, edges)
        changed = {"numpy": edges.numpy(), "data": edges.data}.get(how, edges)
        changed[0, 0] = 5
    assert torch.equal(model(X, edges), model(X, edges.clone()))
    assert not torch.equal(model(X, edges), first)


def test_weights_that_need_a_gradient_are_rejected() -> None:
    weight = torch.ones(EDGES.shape[1], requires_grad=True)
    with pytest.raises(InputError, match="detach"):
        models()[0](X, EDGES, weight)


def test_an_edge_to_a_missing_node_is_an_error() -> None:
    with pytest.raises(InputError, match="node 9"):
        models()[0](X, torch.tensor([[0], [9]]))


def test_a_called_model_can_be_copied_and_pickled() -> None:
    model = models()[-1].eval()
    expected: Tensor = model(X, EDGES)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(X, EDGES), expected)


def test_matrices_have_the_type_of_the_model() -> None:
    model = models()[0].eval()
    expected = model(X, EDGES)
    found = model.float()(X.float(), EDGES)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)

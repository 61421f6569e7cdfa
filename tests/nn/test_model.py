import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from canet.nn import CaNet, SparseMatrix
from tests.support.networks import (
    EDGES,
    HIDDEN,
    MODELS,
    NO_EDGES,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
    predict,
)


def features() -> Tensor:
    return torch.randn(NUM_NODES, NUM_FEATURES)


models = pytest.mark.parametrize("name", MODELS)


@models
def test_permuted_nodes_give_permuted_outputs(name: str) -> None:
    model, x = MODELS[name]().eval(), features()
    order = torch.randperm(NUM_NODES)
    place = torch.empty_like(order)
    place[order] = torch.arange(NUM_NODES)
    permuted = predict(model, x[order], place[EDGES]).logits
    torch.testing.assert_close(permuted, predict(model, x).logits[order])


@models
def test_order_of_edges_changes_nothing(name: str) -> None:
    model, x = MODELS[name]().eval(), features()
    permuted = EDGES[:, torch.randperm(EDGES.shape[1])]
    torch.testing.assert_close(predict(model, x, permuted).logits, predict(model, x).logits)


@models
@pytest.mark.parametrize("edges", [EDGES, NO_EDGES], ids=["awkward", "no edges"])
def test_awkward_graphs_give_finite_outputs_and_every_parameter_learns(
    name: str, edges: Tensor
) -> None:
    model = MODELS[name](num_layers=3, dropout=0.3)
    prediction = predict(model, features(), edges)
    loss = F.cross_entropy(prediction.logits, torch.arange(NUM_NODES) % NUM_CLASSES)
    for environment in prediction.environments:
        loss = loss + (environment.sample * environment.log_posterior).sum()
    loss.backward()
    assert prediction.logits.isfinite().all()
    # Without edges, a backbone may compare no nodes.
    alone = ("query", "key") if edges is NO_EDGES else ()
    for parameter_name, parameter in model.named_parameters():
        assert parameter_name.split(".")[-2] in alone or parameter.grad.isfinite().all()
        assert edges is NO_EDGES or (parameter.grad != 0).any(), parameter_name


@models
def test_logits_are_the_last_map_of_the_embedding(name: str) -> None:
    model = MODELS[name](num_layers=3).eval()
    prediction = predict(model, features())
    assert prediction.embedding.shape == (NUM_NODES, HIDDEN)
    torch.testing.assert_close(prediction.logits, model.phi_out(prediction.embedding))


@pytest.mark.parametrize("along", [name for name in MODELS if name.endswith("along")])
def test_direction_matters_and_against_is_along_reversed_edges(along: str) -> None:
    model, x = MODELS[along]().eval(), features()
    other = MODELS[along.replace("along", "against")]().eval()
    other.load_state_dict(model.state_dict())
    logits = predict(other, x).logits
    assert predict(model, x).logits.allclose(logits) == (model.operators == other.operators)
    if not set(model.operators) & set(other.operators):
        torch.testing.assert_close(predict(model, x, EDGES.flip(0)).logits, logits)


@models
def test_sparse_features_give_the_same_logits_and_gradients(name: str) -> None:
    model, x = MODELS[name]().eval(), features().relu()
    results = []
    for inputs in (x, SparseMatrix.from_torch(x.to_sparse_csr())):
        logits = predict(model, inputs).logits
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        results.append((logits, *gradients))
    for of_dense, of_sparse in zip(*results, strict=True):
        torch.testing.assert_close(of_dense, of_sparse)


@models
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_predicting_drops_nothing_and_draws_nothing(name: str, sparse: bool) -> None:
    model, other, x = MODELS[name]().eval(), MODELS[name](dropout=0.9).eval(), features()
    inputs = SparseMatrix.from_torch(x.to_sparse_csr()) if sparse else x
    other.load_state_dict(model.state_dict())
    expected = predict(model, inputs).logits
    assert predict(other, inputs).logits.equal(expected)
    assert not other.training
    assert not predict(other.train(), inputs).logits.allclose(expected)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_dropout_of_sparse_features_zeroes_its_share_and_keeps_the_expectation(
    share: float,
) -> None:
    x = F.one_hot(torch.arange(20_000) % 4, 5) * (1 + torch.rand(20_000, 1))
    model = CaNet(5, NUM_CLASSES, hidden=5, dropout=share)
    with torch.no_grad():
        model.phi_in.weight.copy_(torch.eye(5))
        dropped = model.project(SparseMatrix.from_torch(x.to_sparse_csr()))
    kept = dropped != 0
    assert not kept[x == 0].any()
    assert 1 - kept[x != 0].double().mean().item() == pytest.approx(share, abs=0.015)
    torch.testing.assert_close(dropped[kept], x[kept] / (1 - share), rtol=1e-4, atol=0)
    assert dropped.sum().item() == pytest.approx(x.sum().item(), rel=0.05)


def test_dropout_of_sparse_features_leaves_the_features_alone() -> None:
    x = SparseMatrix.from_torch(features().to_sparse_csr())
    before = x.value.clone()
    model = CaNet(NUM_FEATURES, NUM_CLASSES, dropout=0.5)
    assert not model.project(x).allclose(model.project(x))
    assert x.value.equal(before)

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from canet.data.graph import UserGraph
from canet.diagnosis.graph import read_graph, sample, seed_of
from canet.estimator.classifier import NodeClassifier
from canet.nn import BACKBONES
from canet.reading.prepared import PreparedGraph
from tests.support.planted import neighbours_sign, planted, random_graph, sign_of


def fitted(data: Data, method: str, backbone: str, **settings: str) -> NodeClassifier:
    usual = {"epochs": 1, "hidden": 8, "undirected": False, "verbose": 0, "device": "cpu"}
    return NodeClassifier(method, backbone, **usual, **settings).fit(data)


def test_a_graph_is_a_component_or_given_by_batch() -> None:
    data = random_graph(n=6)
    data.edge_index = torch.tensor([[0, 1, 4], [1, 2, 5]])
    model = planted(sign_of(3), data)
    assert read_graph(model, data).graph.tolist() == [0, 0, 0, 1, 2, 2]
    data.batch = torch.tensor([0, 0, 1, 1, 1, 1])
    assert read_graph(model, data).graph.tolist() == [0, 0, 1, 1, 1, 1]


def test_other_features_and_edges_are_predicted_without_changing_the_graph() -> None:
    data = random_graph(n=6)
    before = data.clone()
    graph = read_graph(planted(neighbours_sign(3), data), data)
    assert (graph.predict_edges(torch.empty(2, 0, dtype=torch.long)).argmax(axis=1) == 0).all()
    positive = np.full(6, int(data.x[:, 3].argmax()))  # a donor with a positive value
    assert data.x[positive[0], 3] > 0
    found = graph.replacing(np.array([3]))(positive).argmax(axis=1)
    assert (found == (graph.degree > 0)).all()
    assert (graph.predict_edges(data.edge_index).argmax(axis=1) == graph.prediction).all()
    assert data.x.equal(before.x)
    assert data.edge_index.equal(before.edge_index)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("method", "backbone", "scaling"),
    [
        *((method, backbone, "raw") for method in ("erm", "canet") for backbone in BACKBONES),
        ("erm", "gcn", "centred"),
        ("erm", "gcn", "standardised"),
    ],
)
def test_replaced_columns_give_the_logits_of_replaced_features(
    method: str, backbone: str, scaling: str, sparse: bool
) -> None:
    data, columns = random_graph(n=60), np.array([0, 3, 4])
    if sparse:
        data.x = (data.x * (data.x > 0)).to_sparse_csr()
    model = fitted(data, method, backbone, scaling=scaling)
    graph, donors = read_graph(model, data), np.random.default_rng(0).permutation(60)
    x = data.x.to_dense().clone()
    x[:, columns] = x[donors][:, columns]  # which leaves means and deviations as they are
    expected = model.prepare(data).read(x=x.to_sparse_csr() if sparse else x).logits
    assert graph.replacing(columns)(donors) == pytest.approx(expected.numpy(), abs=1e-5)
    few = data.edge_index[:, :9]
    changed = UserGraph(data.x, few, torch.from_numpy(graph.graph))
    expected = model.fitted_.read(PreparedGraph(changed)).logits
    assert graph.predict_edges(few) == pytest.approx(expected.numpy(), abs=1e-5)


def test_predicting_some_nodes_gives_the_same_logits_and_keeps_the_model() -> None:
    data, nodes = random_graph(n=60), np.array([7, 3, 50])
    model = fitted(data, "canet", "gcn")
    before = model.predict_proba(data)
    some, every = (
        read_graph(model, data, nodes=chosen).replacing(np.array([2]))(np.arange(60)[::-1])
        for chosen in (nodes, None)
    )
    assert some == pytest.approx(every[np.sort(nodes)], abs=1e-6)
    assert (model.predict_proba(data) == before).all()


def test_degrees_are_those_of_the_edges_of_the_model() -> None:
    data = random_graph(n=3)
    data.edge_index = torch.tensor([[0, 1], [2, 2]])
    assert read_graph(planted(sign_of(3), data), data).degree.tolist() == [0, 0, 2]
    both = planted(sign_of(3), data, undirected=True)
    assert read_graph(both, data).degree.tolist() == [1, 1, 2]


def test_features_of_other_kinds_are_converted() -> None:
    data = random_graph(n=5)
    model = planted(sign_of(3), data)
    expected = read_graph(model, data).x
    for other in (data.x.double(), data.x.to_sparse()):
        found = read_graph(model, Data(x=other, edge_index=data.edge_index)).x
        found = found.toarray() if sp.issparse(found) else found
        assert found.dtype == np.float32
        assert (found == expected).all()


def test_validation_nodes_of_the_training_graph_are_scored() -> None:
    data = random_graph(n=4)
    data.y = torch.tensor([0, 1, -1, 0])
    model = planted(sign_of(3), random_graph(n=4))
    model.reference_ = replace(model.reference_, valid_nodes=torch.tensor([1, 2]))
    assert read_graph(model, data).scored.tolist() == [True, True, False, True]
    assert read_graph(model, data, trained_on=True).scored.tolist() == [False, True, False, False]
    chosen = read_graph(model, data, trained_on=True, nodes=[0, 1])
    assert chosen.scored.tolist() == [True, True, False, False]
    # Another graph in its place may have fewer nodes.
    model.reference_ = replace(model.reference_, valid_nodes=torch.tensor([7, 8]))
    assert read_graph(model, data, trained_on=True).rows.tolist() == [0, 1, 2, 3]


def test_times_are_used_if_every_node_has_one() -> None:
    data = random_graph(n=3)
    model = planted(sign_of(3), data)
    data.time = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="datetime64[D]")
    time = read_graph(model, data).time
    assert np.diff(time).tolist() == [86400, 86400]
    data.time = np.array([1.0, np.nan, 2.0])
    assert read_graph(model, data).time is None


def test_samples_are_all_or_some_without_repeats() -> None:
    random = np.random.default_rng(0)
    assert sample(4, 9, random).tolist() == [0, 1, 2, 3]
    assert len(set(sample(100, 9, random).tolist())) == 9


def test_the_seed_is_the_models() -> None:
    data = random_graph(n=3)
    assert seed_of(planted(sign_of(3), data, random_state=np.int64(7))) == 7
    assert seed_of(planted(sign_of(3), data, random_state=None)) == 0

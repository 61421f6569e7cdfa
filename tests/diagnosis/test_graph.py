from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from canet.diagnosis.graph import read_graph, sample, seed_of, seen_in_training
from canet.estimator import NodeClassifier
from tests.support.planted import neighbours_sign, planted, random_graph, sign_of
from tests.support.user_graphs import small_user_graph


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


def test_without_ids_training_nodes_are_found_by_features_that_are_unlike_others() -> None:
    data = random_graph(n=60)
    model = planted(sign_of(3), data)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    later = Data(torch.cat([data.x[order], random_graph(n=40, seed=1).x]), data.edge_index)
    later.x[0] = later.x[1]  # two nodes with equal rows prove nothing
    for kind in (later.x, later.x.to_sparse_csr()):
        graph = read_graph(model, Data(kind, data.edge_index))
        seen = seen_in_training(graph, model.reference_)
        assert np.flatnonzero(seen).tolist() == list(range(2, 60))
    few = read_graph(model, Data(later.x[40:], data.edge_index[:, :0]))  # 20 of 60 nodes
    assert not seen_in_training(few, model.reference_).any()


def test_equal_rows_of_other_nodes_are_chance() -> None:
    data, later = (random_graph(n=3000, columns=4, seed=seed) for seed in (0, 1))
    for one in (data, later):
        one.x = (2 * one.x).round()  # of 3,000 rows, 400 occur once
    seen = seen_in_training(read_graph(model := planted(sign_of(3), data), later), model.reference_)
    assert not seen.any()


@pytest.mark.parametrize("has_batch", [True, False])
@pytest.mark.parametrize(
    ("method", "backbone", "scaling"),
    [
        ("erm", "gcn", "raw"),
        ("erm", "transformer", "raw"),
        ("linear", None, "standardised"),
        ("trees", None, "centred"),
    ],
)
def test_values_of_training_nodes_change_only_the_columns(
    method: str, backbone: str | None, scaling: str, has_batch: bool
) -> None:
    how = {"epochs": 10} if method == "erm" else {}
    model = NodeClassifier(method, backbone, undirected=True, device="cpu", scaling=scaling, **how)
    new, columns = small_user_graph(seed=1), np.array([0, 2])
    if has_batch:
        new.batch = torch.arange(60) // 30
        new.edge_index = new.edge_index[:, new.batch[new.edge_index].diff(dim=0)[0] == 0]
    known = model.fit(small_user_graph()).reference_.x
    graph = replace(read_graph(model, new), donors=known)
    donors = graph.draw_donors(np.random.default_rng(0))
    found = torch.from_numpy(graph.replacing(columns)(donors)).softmax(dim=1)
    new.x[:, columns] = known[donors[:60] - 60][:, columns]
    np.testing.assert_allclose(found, model.predict_proba(new), atol=1e-5)

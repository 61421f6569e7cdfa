from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from canet.diagnosis.graph import class_numbers, read_graph, sample, seed_of
from canet.errors import InputError

from .planted import neighbours_sign, planted, random_graph, sign_of


def test_labels_are_numbered_by_the_models_classes() -> None:
    classes = np.array(["a", "b"])
    y = np.array(["b", None, "a", "c"], dtype=object)
    assert class_numbers(y, 4, classes).tolist() == [1, -1, 0, 2]
    assert class_numbers(None, 2, classes).tolist() == [-1, -1]
    assert class_numbers([7, -1, 3], 3, np.array([3, 7])).tolist() == [1, -1, 0]
    with pytest.raises(InputError, match="y"):
        class_numbers([0, 1], 2, np.array(["a", "b"]))


def test_a_graph_is_its_component_or_what_batch_says() -> None:
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
    positive = graph.predict_features(np.abs(graph.x)).argmax(axis=1)
    assert (positive == (graph.degree > 0)).all()
    assert (graph.predict_edges(data.edge_index).argmax(axis=1) == graph.prediction).all()
    assert data.x.equal(before.x)
    assert data.edge_index.equal(before.edge_index)


def test_degrees_are_of_the_edges_that_the_model_reads() -> None:
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


def test_training_nodes_are_scored_only_where_all_were_trained_on() -> None:
    data = random_graph(n=4)
    data.y = torch.tensor([0, 1, -1, 0])
    model = planted(sign_of(3), random_graph(n=4))
    assert read_graph(model, data).scored.tolist() == [True, True, False, True]
    data.train_mask = torch.tensor([True, False, False, False])
    assert read_graph(model, data).scored.tolist() == [True, True, False, True]
    assert read_graph(model, data, trained_on=True).scored.tolist() == [False, True, False, True]
    data.train_mask = torch.ones(4, dtype=torch.bool)
    assert read_graph(model, data, trained_on=True).scored.tolist() == [True, True, False, True]


def test_times_count_only_where_every_node_has_one() -> None:
    data = random_graph(n=3)
    model = planted(sign_of(3), data)
    data.time = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="datetime64[D]")
    time = read_graph(model, data).time
    assert time is not None
    assert np.diff(time).tolist() == [86400, 86400]
    data.time = np.array([1.0, np.nan, 2.0])
    assert read_graph(model, data).time is None


def test_logits_give_the_probabilities_again() -> None:
    data = random_graph(n=8)
    graph = read_graph(planted(sign_of(3), data), data)
    again = np.exp(graph.logits)
    assert again == pytest.approx(graph.probabilities)


def test_samples_are_all_or_some_without_repeats() -> None:
    random = np.random.default_rng(0)
    assert sample(4, 9, random).tolist() == [0, 1, 2, 3]
    assert len(set(sample(100, 9, random).tolist())) == 9


def test_the_seed_is_the_models() -> None:
    data = random_graph(n=3)
    assert seed_of(planted(sign_of(3), data, random_state=np.int64(7))) == 7
    assert seed_of(planted(sign_of(3), data, random_state=None)) == 0

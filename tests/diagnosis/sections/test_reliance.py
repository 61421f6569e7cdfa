from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from canet.diagnosis.graph import read_graph
from canet.diagnosis.perturb import draw_donors
from canet.diagnosis.sections.reliance import Reliance, num_passes, reliance
from tests.support.planted import Rule, mask, neighbours_sign, planted, random_graph, sign_of

BLOCKS = {"first": np.array([0, 1]), "third": np.array([3]), "rest": np.array([2, 4, 5])}


def relied_on(rule: Rule, data: Data, repeats: int = 4, **known: Any) -> Reliance:
    model = planted(rule, data, **known)
    return reliance(read_graph(model, data), BLOCKS, model.random_state, repeats)


def test_only_the_used_block_changes_predictions() -> None:
    found = relied_on(sign_of(3), random_graph())
    third, *others = found.features
    assert third.name == "third"
    assert 0.4 < third.flip_rate.value < 0.6
    assert [effect.flip_rate.value for effect in others] == [0, 0]
    assert found.all_features.flip_rate == third.flip_rate
    assert found.score is not None
    assert found.score.value == 1
    assert third.score is not None
    assert third.score_loss is not None
    assert third.score.value == pytest.approx(1 - third.flip_rate.value)
    assert third.score_loss.value == pytest.approx(third.flip_rate.value)
    assert [effect.name for effect in found.edges] == ["rewired", "half dropped", "dropped"]
    assert [effect.flip_rate.value for effect in found.edges] == [0, 0, 0]
    assert 0.4 < found.own.flip_rate.value < 0.6
    assert found.others.flip_rate.value == 0


def test_a_model_of_neighbours_relies_on_edges_and_other_nodes() -> None:
    data = random_graph(n=400)
    source, target = data.edge_index
    data.edge_index = data.edge_index[:, source != target]
    found = relied_on(neighbours_sign(3), data)
    assert found.edges[0].flip_rate.value > 0.35
    assert found.edges[1].flip_rate.value > 0.1
    assert found.edges[2].flip_rate.value > 0.35  # without edges class 0 is predicted
    assert found.own.flip_rate.value < 0.05  # of neighbours in the same fold
    assert found.others.flip_rate.value > 0.35


def test_the_flip_rate_is_that_of_a_loop() -> None:
    data, repeats = random_graph(n=30), 3
    found = relied_on(sign_of(3), data, repeats)
    random = np.random.default_rng(0)
    flips = 0
    for _ in range(repeats):
        donors = draw_donors(30, random)
        for node in range(30):
            flips += (data.x[node, 3] > 0) != (data.x[donors[node], 3] > 0)
    assert found.features[0].flip_rate.value == pytest.approx(flips / 30 / repeats)


def test_values_come_from_other_environments_if_there_are_several() -> None:
    data = random_graph(n=100)
    data.x[:50, 3], data.x[50:, 3] = 1.0, -1.0
    data.environment = torch.arange(100) // 50
    found = relied_on(sign_of(3), data)
    assert found.donors == "nodes of other environments"
    assert found.features[0].flip_rate.value == 1


def test_accuracy_is_read_on_labelled_nodes_that_were_not_trained_on() -> None:
    data = random_graph(n=40)
    data.train_mask = mask(40, list(range(30)))
    data.y = data.y.clone()
    data.y[:30] = 1 - data.y[:30]
    data.y[39] = -1
    model = planted(sign_of(3), random_graph(n=40))
    found = reliance(read_graph(model, data, trained_on=True), BLOCKS, repeats=1)
    assert (found.nodes, found.scored) == (40, 9)
    assert found.score is not None
    assert found.score.value == 1


def test_without_labels_there_are_only_flip_rates() -> None:
    data = random_graph()
    model = planted(sign_of(3), data)
    unlabelled = data.clone()
    del unlabelled.y
    found = reliance(read_graph(model, unlabelled), BLOCKS, repeats=2)
    assert found.score is None
    assert found.features[0].score is None
    assert found.features[0].score_loss is None
    assert found.features[0].flip_rate.value > 0.4


def test_sparse_features_give_the_flips_of_dense_ones() -> None:
    data = random_graph()
    data.x = data.x * (data.x > 0.3)
    dense = relied_on(sign_of(3), data)
    data.x = data.x.to_sparse_csr()
    assert relied_on(sign_of(3), data) == dense


def test_the_graph_is_unchanged_and_the_result_is_deterministic() -> None:
    data = random_graph()
    before = data.clone()
    first = relied_on(neighbours_sign(3), data)
    assert first == relied_on(neighbours_sign(3), data)
    assert first != relied_on(neighbours_sign(3), data, random_state=1)
    assert data.keys() == before.keys()
    assert all(torch.equal(data[name], before[name]) for name in ("x", "edge_index", "y"))


def test_intervals_contain_the_rate_of_many_nodes_and_draws() -> None:
    many = relied_on(sign_of(3), random_graph(n=4000, degree=1), 10).features[0].flip_rate.value
    held = [
        low.low <= many <= low.high
        for seed in range(12)
        for low in [relied_on(sign_of(3), random_graph(n=100, seed=seed)).features[0].flip_rate]
    ]
    assert sum(held) >= 9


def test_the_number_of_passes_is_known() -> None:
    data = random_graph(n=60)
    passes: list[str] = []
    model = planted(sign_of(3), data)
    reliance(read_graph(model, data), BLOCKS, 0, 2, passes.append)
    assert len(passes) == num_passes(len(BLOCKS), 2)

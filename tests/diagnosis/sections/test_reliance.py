from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from canet.diagnosis.graph import read_graph
from canet.diagnosis.sections.reliance import Effect, Reliance, compute, num_passes
from canet.scoring.intervals import Estimate
from tests.support.planted import (
    Rule,
    make_context,
    neighbours_sign,
    planted,
    random_graph,
    sign_of,
)

BLOCKS = {"first": np.array([0, 1]), "third": np.array([3]), "rest": np.array([2, 4, 5])}


def relied_on(rule: Rule, data: Data, repeats: int = 4, **known: Any) -> Reliance:
    model = planted(rule, data, **known)
    context = make_context(model, blocks=BLOCKS, repeats=repeats)
    return compute(replace(context, graphs={"training": read_graph(model, data, trained_on=True)}))


def test_only_the_used_block_changes_predictions() -> None:
    found = relied_on(sign_of(3), random_graph())
    third, *others = found.features
    assert third.name == "third"
    assert 0.4 < third.changed.value < 0.6
    assert [effect.changed.value for effect in others] == [0, 0]
    assert found.all_features.changed == third.changed
    assert found.score.value == 1
    assert third.lost.value == pytest.approx(third.changed.value)
    assert found.edges.changed.value == 0


def test_the_size_is_the_loss_or_without_labels_the_change() -> None:
    effect = Effect("a", 1, changed=Estimate(0.04, 0.03, 0.05), lost=Estimate(0.02, 0.01, 0.03))
    assert effect.size == effect.lost
    assert effect.is_relevant
    assert not replace(effect, lost=Estimate(0.02, -0.01, 0.05)).is_relevant
    unlabelled = replace(effect, lost=None)
    assert unlabelled.size == effect.changed
    assert not unlabelled.is_relevant
    assert replace(unlabelled, changed=Estimate(0.06, 0.03, 0.09)).is_relevant


def test_a_model_of_neighbours_relies_on_edges() -> None:
    found = relied_on(neighbours_sign(3), random_graph(n=400))
    assert found.edges.changed.value > 0.35


def test_values_come_from_other_environments_if_there_are_several() -> None:
    data = random_graph(n=100)
    data.x[:50, 3], data.x[50:, 3] = 1.0, -1.0
    data.environment = torch.arange(100) // 50
    found = relied_on(sign_of(3), data)
    assert found.donors == "nodes of other environments"
    assert found.all_features.changed.value == 1


@pytest.mark.parametrize("rule", [sign_of(3), neighbours_sign(3)])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_column_that_is_constant_in_the_new_graph_gets_values_of_training_nodes(
    rule: Rule, sparse: bool
) -> None:
    data = random_graph()
    new = Data(data.x.clone(), data.edge_index, y=data.y)
    new.x[:, 3] = 0.0
    new.x = new.x.to_sparse_csr() if sparse else new.x
    found = compute(make_context(planted(rule, data), new, blocks=BLOCKS, repeats=2))
    assert (found.donors, found.score, found.nodes) == ("training nodes", None, 200)
    first, *others = found.features
    assert first.name == "third"
    assert 0.35 < first.size.value < 0.65
    assert [one.size.value for one in others] == [0, 0]
    assert found.edges.size.value == 0


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_only_validation_nodes_of_the_training_graph_count(metric: str) -> None:
    data = random_graph(n=60)
    model = planted(sign_of(3), data, metric=metric)
    model.reference_ = replace(model.reference_, valid_nodes=torch.arange(30, 60))

    def found() -> Reliance:
        context = make_context(model, blocks=BLOCKS, repeats=2)
        graph = read_graph(model, data, trained_on=True)
        return compute(replace(context, graphs={"training": graph}))

    right = found()
    assert (right.nodes, right.score and right.score.value) == (30, 1)
    data.y[:30] = 1 - data.y[:30]
    assert found() == right
    data.y[59] = -1
    assert found().nodes == 29
    data.y[30:45] = 1 - data.y[30:45]
    other = found().score
    assert other.value < 0.9


def test_the_graph_is_unchanged_and_the_result_is_deterministic() -> None:
    data = random_graph()
    before = data.clone()
    first = relied_on(neighbours_sign(3), data)
    assert first == relied_on(neighbours_sign(3), data)
    assert first != relied_on(neighbours_sign(3), data, random_state=1)
    assert data.keys() == before.keys()
    assert all(torch.equal(data[name], before[name]) for name in ("x", "edge_index", "y"))


def test_the_number_of_passes_is_known() -> None:
    data = random_graph(n=60)
    passes: list[str] = []
    model = planted(sign_of(3), data)
    compute(make_context(model, data, blocks=BLOCKS, repeats=2, on_pass=passes.append))
    assert len(passes) == num_passes(len(BLOCKS), 2)

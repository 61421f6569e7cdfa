"""Features are prepared with statistics of their own graph only."""

from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from canet.data.graph import Graph
from canet.data.task import ShiftTask
from canet.methods import METHODS
from canet.methods.base import Scaling
from canet.methods.interventions import Interventions, as_scipy
from canet.models import FittedNetwork, Trainer
from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.nn.model import rows_of
from canet.reading.prepared import PreparedGraph
from canet.reading.scaling import prepare_features
from canet.settings import override
from tests.support.small_task import with_columns
from tests.support.tiny import (
    NUM_ID,
    NUM_NODES,
    disconnected_task,
    tiny_task,
    with_other_test_nodes,
)
from tests.support.trainers import same_bits, weights

CHANGES = [how for how in get_args(Scaling) if how != "raw"]
GRAPH = torch.tensor([7, 7, 2, 7, 2, 7, 9, 2, 7, 2])  # one node is alone in its graph

changes = pytest.mark.parametrize("how", CHANGES)
methods = pytest.mark.parametrize(
    ("name", "how"),
    [("erm", how) for how in CHANGES]
    + [(name, "standardised") for name in ("sr_gnn", "eerm", "canet")],  # they read the graph
)


def table() -> Tensor:
    """Ten nodes; row 1 is zero, columns 3 and 4 are constant, column 5 has ties."""
    x = torch.randn(10, 6, generator=torch.Generator().manual_seed(0)).relu()
    x[:, 3], x[:, 4], x[:, 5] = 0.1, 0.0, (10 * x[:, 5]).round()
    x[1] = 0
    x[:, 2] -= x[:, 0]
    return x


def slow(x: Tensor, graph: Tensor, how: str) -> Tensor:
    """The definition, entry by entry."""
    prepared = torch.zeros_like(x)
    for v, j in np.ndindex(*x.shape):
        column = [float(x[u, j]) for u in range(len(x)) if graph[u] == graph[v]]
        mean = sum(column) / len(column)
        deviation = (sum((value - mean) ** 2 for value in column) / len(column)) ** 0.5
        value = float(x[v, j])
        if how == "rows":
            prepared[v, j] = value / (float(x[v].abs().sum()) or 1.0)
        elif how == "centred":
            prepared[v, j] = value - mean
        else:
            prepared[v, j] = (value - mean) / (deviation if deviation > 1e-9 else 1.0)
    return prepared


def dense(x: Features) -> Tensor:
    return torch.from_numpy(as_scipy(x).toarray()).float()


@changes
@pytest.mark.parametrize("graph", [GRAPH, None], ids=["graphs", "one graph"])
def test_prepared_features_are_those_of_a_loop_over_entries(
    how: Scaling, graph: Tensor | None
) -> None:
    x, before = table(), table()
    prepared = prepare_features(x, graph, how)
    expected = slow(x, torch.zeros(10) if graph is None else graph, how)
    assert isinstance(prepared, Tensor)
    assert prepared.dtype == torch.float32
    torch.testing.assert_close(prepared, expected, atol=1e-6, rtol=1e-5)
    assert x.equal(before)


@changes
@pytest.mark.parametrize("graph", [GRAPH, None], ids=["graphs", "one graph"])
def test_sparse_features_stay_sparse_and_are_prepared_like_dense_ones(
    how: Scaling, graph: Tensor | None
) -> None:
    x = table()
    prepared = prepare_features(x.to_sparse_csr(), graph, how)
    stored = prepared.x if isinstance(prepared, ShiftedFeatures) else prepared
    assert isinstance(stored, SparseMatrix)
    assert stored.pattern.nnz == (x != 0).sum()
    expected = prepare_features(x, graph, how)
    assert isinstance(expected, Tensor)
    torch.testing.assert_close(dense(prepared), expected, atol=1e-6, rtol=1e-5)
    nodes = torch.tensor([6, 0, 3])
    torch.testing.assert_close(dense(rows_of(prepared, nodes)), dense(prepared)[nodes])


def test_raw_features_are_unchanged() -> None:
    x = table()
    assert prepare_features(x, GRAPH, "raw") is x
    assert isinstance(prepare_features(x.to_sparse_csr(), GRAPH, "raw"), SparseMatrix)


@changes
@pytest.mark.parametrize("sparse", [False, True])
def test_another_graph_changes_no_bit(how: Scaling, sparse: bool) -> None:
    x, garbage = table(), table()
    garbage[GRAPH != 7] = 3e38
    both = [
        dense(rows_of(prepare_features(t.to_sparse_csr() if sparse else t, GRAPH, how), nodes))
        for t in (x, garbage)
        for nodes in [(GRAPH == 7).nonzero().flatten()]
    ]
    assert both[0].equal(both[1])


# Training -----------------------------------------------------------------------------------------


def trainer(task: ShiftTask, how: str, name: str = "erm", **changes: object) -> Trainer:
    given = {"hidden": 8, "epochs": 6, "learning_rate": 0.02, "scaling": how} | changes
    return Trainer(task, name, "gcn", override(METHODS[name].settings_type(), given), "cpu")


@methods
@pytest.mark.parametrize("case", ["disconnected", "inductive"])
def test_nodes_that_are_not_of_the_training_graph_change_no_bit_of_training(
    name: str, how: str, case: str
) -> None:
    task = disconnected_task() if case == "disconnected" else tiny_task(inductive=True)
    honest = trainer(task, how, name).run(0)
    garbled = trainer(with_other_test_nodes(task), how, name).run(0)
    assert same_bits(weights(honest), weights(garbled))
    assert honest.history == garbled.history


@methods
def test_training_is_that_on_features_which_were_prepared_before(name: str, how: str) -> None:
    task = tiny_task()
    before = with_columns(task, x=slow(task.data.x, torch.zeros(NUM_NODES), how))
    runs = [trainer(task, how, name).run(0), trainer(before, "raw", name).run(0)]
    tolerance = 1e-2 if name == "sr_gnn" else 1e-3
    assert runs[0].history["loss"] == pytest.approx(runs[1].history["loss"], rel=tolerance)


def test_statistics_of_hidden_nodes_are_not_those_of_training() -> None:
    """Predictions on the whole graph use statistics of the whole graph."""
    fields = trainer(tiny_task(inductive=True), "centred").fields
    x = fields.view().x
    assert isinstance(x, Tensor)
    torch.testing.assert_close(x[:NUM_ID].mean(dim=0), torch.zeros(8), atol=1e-6, rtol=0)
    whole = slow(tiny_task().data.x, torch.zeros(NUM_NODES), "centred")
    near = fields.batch("ood/near").x
    assert isinstance(near, Tensor)
    torch.testing.assert_close(near[:10], whole[NUM_ID : NUM_ID + 10])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.filterwarnings("ignore::canet.methods.interventions.InterventionWarning")
def test_interventions_add_to_prepared_features_and_see_their_spread(sparse: bool) -> None:
    task = tiny_task(sparse=sparse)
    of = trainer(task, "standardised", interventions="given")
    view, batch = of.fields.view(), of.fields.batch("train")
    found = Interventions(of.learner.settings, view, torch.device("cpu"))
    x = task.data.x.to_dense() if sparse else task.data.x
    before = with_columns(task, x=slow(x, torch.zeros(NUM_NODES), "standardised"))
    expected = Interventions(
        of.learner.settings, trainer(before, "raw").fields.view(), torch.device("cpu")
    )
    torch.testing.assert_close(found.group_spread, expected.group_spread, atol=1e-5, rtol=1e-4)
    torch.manual_seed(0)
    shifted = found(batch).x
    assert isinstance(shifted, ShiftedFeatures)
    written = dense(batch.x) + shifted.member @ shifted.offset
    model = of.learner.new_method(of.task).model.eval()
    torch.testing.assert_close(model.project(shifted), model.project(written), atol=1e-5, rtol=1e-4)


# Prediction ---------------------------------------------------------------------------------------


@changes
@pytest.mark.parametrize("numbered", [False, True])
def test_a_new_graph_is_prepared_by_its_own_statistics(how: str, numbered: bool) -> None:
    task = tiny_task()
    method = trainer(task, how).run(0).method.eval()
    plain = trainer(task, "raw").run(0).method.eval()
    plain.load_state_dict(method.state_dict())
    x = 5 + 3 * task.data.x[:20]
    graph = torch.arange(20) % 2 if numbered else None
    edges = torch.randint(20, (2, 60), generator=torch.Generator().manual_seed(1))
    own = Graph(x, edges, batch=graph)
    prepared = slow(x, torch.zeros(20) if graph is None else graph, how)
    expected = (
        FittedNetwork(plain, "").read(PreparedGraph(Graph(prepared, edges, batch=graph))).logits
    )
    given, nodes = PreparedGraph(own), torch.tensor([3, 17])
    other = PreparedGraph(Graph(torch.zeros_like(x), edges, batch=graph))
    fitted = FittedNetwork(method, "")
    for one in (given, other.with_features(x)):
        found = fitted.read(one).logits
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    found = fitted.read(given, nodes).logits
    torch.testing.assert_close(found, expected[nodes], atol=1e-5, rtol=1e-4)

"""The reference sample of a model, compared with plain loops."""

import numpy as np
import pytest
import torch
from torch import Tensor

from canet.data.graph import Graph
from canet.data.task import ShiftTask, sample_nodes
from canet.errors import InputWarning
from canet.estimator.reference import (
    ROWS_PER_CHUNK,
    Reference,
    build_reference,
    homophily,
)
from canet.methods import METHODS, Method
from canet.models import FittedNetwork
from canet.models.base import Reader
from canet.reading.prepared import PreparedGraph
from canet.util.sparse import to_matrix
from tests.support.orders import fitted_to_orders, orders
from tests.support.small_task import with_columns
from tests.support.tiny import QUICK, tiny_task


def reference(embedding: Tensor, valid_embedding: Tensor, x: Tensor | None = None) -> Reference:
    r, v = embedding.shape[0], valid_embedding.shape[0]
    return Reference(
        x=torch.ones(r, 2) if x is None else x,
        y=torch.arange(r) % 3,
        logits=torch.randn(r, 3),
        embedding=embedding,
        degree=torch.arange(r),
        environment=torch.empty(0, dtype=torch.long),
        valid_nodes=torch.arange(v),
        valid_logits=torch.randn(v, 3),
        valid_y=torch.arange(v) % 3,
        valid_embedding=valid_embedding,
        train_label_counts=torch.tensor([2, 1, 4]),
        homophily=torch.tensor(0.25, dtype=torch.double),
        node_ids=torch.arange(r),
        valid_node_ids=torch.arange(v),
    )


def tenth_nearest(rows: Tensor, known: Tensor) -> np.ndarray:
    """Distance of each row to the tenth nearest of some others, after scaling to unit norm."""
    scaled = [row / np.linalg.norm(row) for row in known.double().numpy()]
    distances = []
    for row in rows.double().numpy():
        unit = row / np.linalg.norm(row)
        distances.append(sorted(np.linalg.norm(unit - other) for other in scaled)[:10][-1])
    return np.array(distances)


@pytest.mark.parametrize("known", [3, 10, 60])
def test_novelty_score_is_the_rank_of_the_tenth_nearest_distance(known: int) -> None:
    torch.manual_seed(0)
    train, valid, new = torch.randn(known, 4), torch.randn(40, 4), torch.randn(30, 4)
    found = reference(train, valid).novelty_score(new)
    of_valid, of_new = tenth_nearest(valid, train), tenth_nearest(new, train)
    expected = [sum(u < d for u in of_valid) / 40 for d in of_new]
    assert found.dtype == torch.double
    assert found.tolist() == expected


def test_novelty_score_does_not_depend_on_norms_or_on_other_nodes() -> None:
    torch.manual_seed(1)
    there = reference(torch.randn(50, 3), torch.randn(50, 3))
    new = torch.randn(ROWS_PER_CHUNK + 7, 3)
    found = there.novelty_score(new)
    assert found.shape == (ROWS_PER_CHUNK + 7,)
    assert there.novelty_score(100 * new[-20:]).tolist() == found[-20:].tolist()
    assert there.novelty_score(new[:1]).tolist() == found[:1].tolist()


def test_novelty_scores_do_not_depend_on_the_number_of_nodes() -> None:
    torch.manual_seed(2)
    few = torch.randn(4, 16).relu()
    for train, valid in ((few.repeat(15, 1), few.repeat(9, 1)), torch.randn(2, 60, 16)):
        there = reference(train, valid)
        found = there.novelty_score(valid)
        alone = [there.novelty_score(row[None]).item() for row in valid]
        assert found.tolist() == alone
    assert found.sort().values.tolist() == pytest.approx([i / 60 for i in range(60)])


def test_novelty_score_is_defined_for_no_nodes_and_for_zero_vectors() -> None:
    there = reference(torch.randn(5, 3), torch.randn(4, 3))
    assert there.novelty_score(torch.empty(0, 3)).shape == (0,)
    assert there.novelty_score(torch.zeros(1, 3)).isfinite().all()
    assert reference(torch.randn(5, 3), torch.empty(0, 3)).novelty_score(
        torch.ones(2, 3)
    ).tolist() == [0, 0]


@pytest.mark.parametrize("sparse", [True, False])
def test_a_reference_comes_back_from_its_tensors(sparse: bool) -> None:
    x = torch.tensor([[0.0, 2.0], [0.0, 0.0], [3.0, 1.0]])
    there = reference(torch.randn(3, 4), torch.randn(2, 4), x.to_sparse_csr() if sparse else x)
    tensors = there.tensors()
    assert all(t.layout == torch.strided for t in tensors.values())
    back = Reference.from_tensors(tensors, features=2, classes=there.logits.shape[1])
    assert back.x.layout == there.x.layout
    assert back.x.dtype == torch.float32
    assert back.x.to_dense().equal(x)
    for name, tensor in tensors.items():
        assert back.tensors()[name].equal(tensor)
        assert back.tensors()[name].dtype == tensor.dtype


def test_a_sample_is_random_and_has_at_most_the_maximum_number_of_nodes() -> None:
    assert sample_nodes(torch.tensor([5, 1, 3]), 3).tolist() == [5, 1, 3]
    many = torch.arange(0, 30_000, 3)
    sample = sample_nodes(many, 5_000)
    assert sample.unique().numel() == 5_000
    assert torch.isin(sample, many).all()
    assert sample.equal(sample_nodes(many, 5_000))
    assert sample[:10].equal(sample_nodes(many, 10))
    assert not sample.equal(sample_nodes(many, 5_000, seed=1))


def test_homophily_counts_edges_between_labelled_nodes_and_no_loops() -> None:
    y = torch.tensor([0, 0, 1, -1])
    edges = torch.tensor([[0, 1, 2, 3, 2, 3], [1, 2, 0, 0, 2, 3]])
    assert homophily(edges, y).item() == pytest.approx(1 / 3)
    assert homophily(torch.tensor([[3, 2], [0, 2]]), y).isnan()
    assert homophily(torch.empty(2, 0, dtype=torch.long), y).isnan()


def built(task: ShiftTask) -> tuple[Reference, Method]:
    """The reference of a method with random weights."""
    torch.manual_seed(0)
    method: Method = METHODS["erm"](QUICK, "gcn", task.num_features, task.num_classes).eval()
    return build_reference(task, reader(method, task), seed=0), method


def reader(method: Method, task: ShiftTask) -> Reader:
    own = Graph(task.data.x, task.data.edge_index)
    return Reader(FittedNetwork(method, "gcn"), PreparedGraph(own))


@pytest.mark.parametrize("sparse", [True, False])
def test_a_reference_contains_predictions_of_training_and_validation_nodes(
    sparse: bool,
) -> None:
    task = tiny_task(sparse=sparse)
    found, method = built(task)
    whole = reader(method, task).read()
    train, valid, y = task.train, task.valid, task.data.y
    torch.testing.assert_close(found.embedding, whole.embedding[train])
    assert found.valid_nodes.equal(valid.sort().values)
    torch.testing.assert_close(found.valid_logits, whole.logits[valid])
    torch.testing.assert_close(found.valid_embedding, whole.embedding[valid])
    assert found.x.to_dense().equal(task.data.x.to_dense()[train])
    assert found.valid_y.equal(y[valid])
    assert found.environment.equal(task.data.environment[train])
    edges = list(zip(*task.data.edge_index.tolist(), strict=True))
    assert found.degree.tolist() == [sum(t == node for _, t in edges) for node in train.tolist()]
    assert found.train_label_counts.tolist() == [int((y[train] == c).sum()) for c in range(3)]
    among = [(s, t) for s, t in edges if s in train and t in train and s != t]
    same = [y[s] == y[t] for s, t in among]
    assert found.homophily.item() == pytest.approx(sum(same) / len(same))


def test_environments_are_stored_if_there_are_labels() -> None:
    assert built(with_columns(tiny_task(), environment=None))[0].environment.tolist() == []


@pytest.mark.parametrize("layouts", [("dense", "dense"), ("sparse", "dense"), ("dense", "sparse")])
def test_a_column_is_constant_if_its_values_of_training_are_missing_more_than_by_chance(
    layouts: tuple[str, str],
) -> None:
    random = np.random.default_rng(0)
    before = random.normal(size=(500, 6)).astype(np.float32)
    before[:, 1] = 3.0  # constant in training
    before[:, 2] = random.random(500) < 0.01  # rare
    before[:, 3] = random.random(500) < 0.2
    now = random.normal(size=(200, 6)).astype(np.float32)
    now[:, 1:4], now[:, 4] = 0.0, -1.5
    known, later = (
        torch.from_numpy(x).to_sparse_csr() if layout == "sparse" else torch.from_numpy(x)
        for x, layout in zip((before, now), layouts, strict=True)
    )
    sample = reference(torch.zeros(500, 2), torch.zeros(3, 2), known)
    assert sample.constant_columns(to_matrix(later), None) == ["3", "4"]
    assert sample.constant_columns(to_matrix(later)[:1], None) == []  # a single node


def test_predictions_warn_once_for_a_graph_of_a_column_that_became_empty() -> None:
    model = fitted_to_orders()
    model.predict(orders(1))
    for new in (orders(1, filled=0.0), orders(2, num_nodes=250, filled=0.0)):
        with pytest.warns(InputWarning, match="late ") as caught:
            model.predict(new)
        assert len(caught) == 1
        model.predict_proba(new)

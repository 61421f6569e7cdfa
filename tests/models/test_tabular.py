"""Linear models and boosted trees on the columns of nodes and neighbours."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import sklearn
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch_geometric.data import Data

import canet
from canet import GraphStoreWriter
from canet.data.graph import Graph
from canet.errors import VersionError
from canet.methods.base import Scaling
from canet.models import Learner, Options, restore
from canet.models.linear import Linear
from canet.models.trees import Trees
from canet.reading.columns import Columns, with_neighbours
from canet.reading.prepared import PreparedGraph, task_graph
from tests.support.commands import call
from tests.support.gpu import needs_gpu
from tests.support.small_task import small_task, with_columns, with_garbage
from tests.support.stores import never_load
from tests.support.user_graphs import small_user_graph
from tests.support.user_tables import write_folder

BOTH = pytest.mark.parametrize("kind", [Linear, Trees])


every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])


def learner(
    kind: Any, weights: torch.Tensor | None = None, device: str = "cpu", **settings: Any
) -> Learner:
    return kind(kind.settings_type(**settings), Options(device, class_weight=weights))


def dense_columns(x: np.ndarray, edges: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The columns, node by node."""

    def mean(of: np.ndarray) -> np.ndarray:
        found = np.zeros_like(of)
        for v in range(len(of)):
            into = edges[1] == v
            if weight[into].sum():
                found[v] = weight[into] @ of[edges[0, into]] / weight[into].sum()
        return found

    sources = [edges[0, edges[1] == v] for v in range(len(x))]  # several self-loops count as one
    degree = [(of != v).sum() + (of == v).any() for v, of in enumerate(sources)]
    return np.concatenate([x, mean(x), mean(mean(x)), np.log1p(degree)[:, None]], axis=1)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_columns_are_means_of_neighbours(sparse: bool, weighted: bool) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(20, 4, generator=random).relu()
    edges = torch.randint(20, (2, 60), generator=random)
    weight = torch.rand(60, generator=random) + 0.5
    own = Graph(x.to_sparse_csr() if sparse else x, edges, weight if weighted else None)
    found = with_neighbours(PreparedGraph(own)).data.x
    expected = dense_columns(x.numpy(), edges.numpy(), weight.numpy() if weighted else np.ones(60))
    assert found.to_dense().numpy() == pytest.approx(expected, abs=1e-5)


@every_device
@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 3.0, 0.5])])
def test_the_linear_model_is_logistic_regression(weights: torch.Tensor | None, device: str) -> None:
    task, penalty = small_task(), 1e-2
    (fitted,) = learner(Linear, weights, device, penalty=penalty).run(task, {0: None})
    x = with_neighbours(task_graph(task, False)).data.x.numpy()
    train, y = task.train.numpy(), task.data.y.numpy()
    of_class = np.ones(3) if weights is None else weights.numpy()
    own = of_class[y[train]] / of_class[y[train]].sum()
    expected = LogisticRegression(C=1 / penalty, max_iter=5000, tol=1e-8)
    expected.fit(x[train], y[train], sample_weight=own)
    found = fitted.read(task_graph(task, False)).logits.softmax(dim=1).numpy()
    assert found == pytest.approx(expected.predict_proba(x), abs=5e-3)


@every_device
def test_sparse_columns_give_the_linear_model_of_dense_ones(device: str) -> None:
    task = small_task()
    sparse = with_columns(task, x=task.data.x.to_sparse_csr())
    for scaling in ("raw", "standardised"):
        first, second = (
            learner(Linear, None, each, scaling=scaling, penalty=0.01).run(one, {0: None})[0].weight
            for one, each in ((task, "cpu"), (sparse, device))
        )
        assert first.numpy() == pytest.approx(second.numpy(), abs=5e-3)


def test_the_penalty_has_the_best_validation_loss() -> None:
    task, y = small_task(), small_task().data.y

    def loss(fitted: Any) -> float:
        logits = fitted.read(task_graph(task, False), task.valid).logits
        return float(torch.nn.functional.cross_entropy(logits, y[task.valid]))

    (chosen,) = learner(Linear).run(task, {0: None})
    tried = [learner(Linear, penalty=p).run(task, {0: None})[0] for p in (1e-4, 1e-3, 1e-2, 1e-1)]
    assert loss(chosen) <= min(map(loss, tried)) + 1e-3


def test_trees_predict_as_in_scikit_learn() -> None:
    for classes in (2, 3):
        task = small_task()
        y = task.data.y.clamp(max=classes - 1)
        task = with_columns(task, y=y)
        (fitted,) = learner(Trees, max_trees=20).run(task, {0: None})
        x = with_neighbours(task_graph(task, False)).data.x.numpy()
        how = {"max_iter": 20, "n_iter_no_change": 10, "max_bins": 63, "max_leaf_nodes": 15}
        expected = HistGradientBoostingClassifier(early_stopping=True, random_state=0, **how)
        parts = [(x[nodes], y[nodes].numpy()) for nodes in (task.train.numpy(), task.valid.numpy())]
        expected.fit(*parts[0], X_val=parts[1][0], y_val=parts[1][1])
        found = fitted.read(task_graph(task, False)).logits.softmax(dim=1).numpy()
        assert found == pytest.approx(expected.predict_proba(x), abs=1e-6)


def test_a_class_that_training_lacks_is_improbable_for_trees() -> None:
    for lacking in ([0], [0, 1], [2]):
        task = small_task()
        y = task.data.y
        rare = torch.isin(y, torch.tensor(lacking))
        if len(lacking) == 2:
            y = torch.where(y == 2, torch.arange(len(y)) % 2 + 2, y)  # two of four classes remain
        train = task.train[~rare[task.train]]
        task = with_columns(replace(task, train=train, checked=True), y=y)
        (fitted,) = learner(Trees, max_trees=5).run(task, {0: None})
        found = fitted.read(task_graph(task, False)).logits.softmax(dim=1)
        assert found.shape[1] == int(y.max()) + 1
        assert (found[:, lacking] < 0.01).all()
        right = found.argmax(dim=1) == y
        assert right[task.train].double().mean() > 0.6


def test_trees_need_one_validation_node_and_no_variance() -> None:
    task = small_task()
    one = replace(task, valid=task.valid[:1])
    assert learner(Trees).run(one, {0: None})[0].result.scores["valid"] in (0, 1)
    equal = with_columns(task, x=torch.ones(len(task.data.y), 100))
    (fitted,) = learner(Trees).run(equal, {0: None})
    assert fitted.logits(equal)["valid"].isfinite().all()


@pytest.mark.parametrize("kind", [Linear, Trees])
def test_the_default_precision_changes_nothing(kind: Any) -> None:
    found, task = [], small_task()
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            (fitted,) = learner(kind).run(task, {0: None})
        finally:
            torch.set_default_dtype(torch.float32)
        found.append(fitted.logits(task)["train"])
    assert found[0].equal(found[1])


def test_trees_read_missing_values_and_project_wide_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("canet.models.trees.MAX_COLUMNS", 3)
    (fitted,) = learner(Trees, neighbours=False, max_trees=5).run(small_task(), {0: None})
    assert fitted.components.shape[0] == 3
    assert fitted._logits(torch.full((2, 3), torch.nan)).isfinite().all()


def graph_and_store(folder: Path, width: int) -> tuple[Data, Path]:
    """Return 20,000 nodes with fractions and whole numbers, and the graph store of them."""
    random, n = np.random.default_rng(0), 20_000
    y = random.integers(3, size=n)
    x = random.normal(size=(n, width)) + 0.5 * np.eye(3, width)[y]
    x[:, -1] = np.round(4 * x[:, -1])
    order, x = np.argsort(y, kind="stable"), x.astype(np.float32)
    edges = np.concatenate([random.integers(n, size=(2, 4 * n)), [order[:-1], order[1:]]], axis=1)
    with GraphStoreWriter(folder / "store", n) as writer:
        writer.add_edges(*edges)
        writer.add_features(x)
    edge_index = torch.from_numpy(np.unique(edges, axis=1))
    split = {"train_mask": torch.arange(n) < 2000, "val_mask": torch.arange(n) >= 19_000}
    data = Data(x=torch.from_numpy(x), edge_index=edge_index, y=torch.from_numpy(y), **split)
    return data, folder / "store"


@pytest.mark.parametrize("width", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_trees_answer_the_same_in_any_order_and_on_disk(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, store = graph_and_store(tmp_path, width)
    random = np.random.default_rng(1)
    nodes = torch.from_numpy(random.permutation(20_000))
    edges = nodes.argsort()[data.edge_index][:, random.permutation(data.num_edges)]
    other = Data(x=data.x[nodes], edge_index=edges)
    never_load(monkeypatch)
    for scaling in get_args(Scaling):
        model = canet.NodeClassifier("trees", scaling=scaling, max_trees=10, undirected=False)
        expected = model.fit(data).predict_proba(data)
        for found in (model.predict_proba(other)[nodes.argsort()], model.predict_proba(store)):
            assert (abs(found - expected).max(axis=1) < 1e-5).mean() > 0.999


def test_trees_of_older_models_are_not_rounded() -> None:
    about, tensors = learner(Trees, max_trees=2).run(small_task(), {0: None})[0].state()
    del about["settings"]["rounded"]
    assert restore(about, tensors).settings.rounded is False


def table_with_gaps() -> tuple[Any, Any]:
    """Nodes with the classes high, low and gone, which is an empty cell; and edges."""
    pandas = pytest.importorskip("pandas")
    value = np.random.default_rng(0).normal(size=200)
    value[::3] = np.nan
    label = np.where(np.isnan(value), "gone", np.where(value > 0, "high", "low"))
    nodes = pandas.DataFrame({"id": range(200), "value": value, "label": label})
    return nodes, pandas.DataFrame({"source": range(199), "target": range(1, 200)})


def test_empty_cells_of_tables_are_missing_for_trees(tmp_path: Path) -> None:
    nodes, edges = table_with_gaps()
    model = canet.NodeClassifier("trees", neighbours=False, undirected=True)
    fitted = model.fit(nodes, edges, label="label", id="id").fitted_
    assert fitted.marks.tolist() == [[0, 1]]
    assert model.score((nodes, edges)) > 0.95
    reader = model.prepare((nodes, edges)).graph
    columns = Columns(reader, fitted.settings, marks=fitted.marks).rows(torch.arange(200))
    assert columns[:, 0].isnan().tolist() == nodes.value.isna().tolist()
    model.save(tmp_path / "model")
    again = canet.load(tmp_path / "model")
    expected = model.predict_proba((nodes, edges))
    assert np.array_equal(again.predict_proba((nodes, edges)), expected)
    write_folder(tmp_path / "graph", *(table.to_csv(index=False) for table in (nodes, edges)))
    how = ("--label", "label", "--undirected", "--out", "store")
    assert call(tmp_path, "convert", "graph", *how).code == 0
    on_disk = model.predict_proba(tmp_path / "store")
    assert on_disk == pytest.approx(expected, abs=1e-5)


def test_an_average_of_trees_that_read_empty_cells_is_saved(tmp_path: Path) -> None:
    nodes, edges = table_with_gaps()
    model = canet.NodeClassifier(preset="fast", undirected=True, checkpoints=tmp_path / "work")
    model.fit(nodes, edges, label="label", id="id")
    assert sum("trees" in one.name and one.weight > 0 for one in model.candidates_) == 2
    model.save(tmp_path / "model")
    expected = model.predict_proba((nodes, edges))
    assert np.array_equal(canet.load(tmp_path / "model").predict_proba((nodes, edges)), expected)


@BOTH
@pytest.mark.parametrize("scaling", ["raw", "standardised"])
def test_a_model_is_restored_and_saved_with_the_same_predictions(
    kind: Any, scaling: str, tmp_path: Path
) -> None:
    task = small_task()
    graph = task_graph(task, False)
    (fitted,) = learner(kind, scaling=scaling).run(task, {0: tmp_path / "run"})
    (again,) = learner(kind, scaling=scaling).run(task, {0: tmp_path / "run"})
    logits = fitted.read(graph).logits
    assert again.read(graph).logits.equal(logits)
    assert restore(*fitted.state()).read(graph).logits.equal(logits)
    nodes = torch.tensor([5, 2])
    assert fitted.read(graph, nodes).logits == pytest.approx(logits[nodes], abs=1e-5)
    model = canet.NodeClassifier(kind.name).fit(small_user_graph())
    model.save(tmp_path / "model")
    loaded = canet.load(tmp_path / "model")
    expected = model.predict_proba(small_user_graph())
    assert np.array_equal(loaded.predict_proba(small_user_graph()), expected)


@BOTH
def test_test_nodes_do_not_change_a_model(kind: Any) -> None:
    task = replace(small_task(), inductive=True)
    garbage = with_garbage(task, task.test_ood["later"], task.test_id)
    (about, first), (other, second) = (
        learner(kind, scaling="standardised").run(one, {0: None})[0].state()
        for one in (task, garbage)
    )
    assert about == other
    assert all(first[name].equal(second[name]) for name in first)


@BOTH
def test_a_diagnosis_changes_the_columns_of_the_model(kind: Any) -> None:
    data = small_user_graph()
    model = canet.NodeClassifier(kind.name, undirected=True).fit(data)
    found = canet.diagnose(model, data, small_user_graph(seed=1), repeats=1)
    assert found.reliance.features[0].size.value > 0


def test_a_scikit_learn_without_a_private_name_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (model,) = Trees().run(small_task(), {0: None})
    module = "sklearn.ensemble._hist_gradient_boosting.common"
    monkeypatch.delattr(f"{module}.PREDICTOR_RECORD_DTYPE")
    again = restore(*model.state())
    with pytest.raises(VersionError, match=f"{sklearn.__version__}.*DTYPE.*pip install"):
        again.logits(small_task())

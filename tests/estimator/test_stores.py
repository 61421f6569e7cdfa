"""A classifier on graph stores: fit, predict, save, load and diagnose."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch_geometric.data import Data

import canet
from canet import GraphStore, GraphStoreWriter, NodeClassifier
from canet.data.graph_files import ReadOptions, Roles, read_columns
from canet.errors import InputError
from canet.models import auto, portfolio
from canet.models.portfolio import Recipe
from canet.nn import Features
from canet.reading import pieces
from canet.reading.rows import RowReader
from tests.support.gpu import needs_gpu
from tests.support.stores import NAMES, NUM_NODES, never_load, write_store
from tests.support.user_tables import write_folder

EDGES = "source,target\n1,2\n2,3\n3,1\n"
BATCHES: dict[str, Any] = {"batch_size": 16, "fanout": "4,4", "epochs": 5, "hidden": 8}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "EDGES_AT_ONCE", {"cpu": 50, "cuda": 50})


def fitted(data: Any, method: str = "erm", device: str = "cpu", **settings: Any) -> NodeClassifier:
    return NodeClassifier(method, "sage", device=device, **{**BATCHES, **settings}).fit(data)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    return write_store(tmp_path_factory.mktemp("graphs") / "store")


@pytest.fixture(scope="module")
def model(store: GraphStore) -> NodeClassifier:
    return fitted(store)


@pytest.mark.parametrize(
    ("kind", "method"), [("dense", "erm"), ("half", "canet"), ("sparse", "erm")]
)
def test_fit_and_predict_from_disk_are_those_in_memory(
    tmp_path: Path, kind: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store", kind=kind, weighted=True)
    graph = store.load()
    expected = fitted(graph, method, undirected=True)
    never_load(monkeypatch)
    model = fitted(store, method, undirected=True)
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.history_["loss"] == pytest.approx(expected.history_["loss"], abs=1e-5)
    assert model.scores_ == pytest.approx(expected.scores_, abs=1e-6)
    assert set(model.scores_) == {"train", "valid", "test"}
    sample, other = model.reference(), expected.reference()
    assert torch.equal(sample.degree, other.degree)
    assert torch.equal(sample.node_ids, other.node_ids)
    assert float(sample.homophily) == pytest.approx(float(other.homophily))
    model.save(tmp_path / "model")
    for data in (store, tmp_path / "store", str(tmp_path / "store")):
        saved = canet.load(tmp_path / "model")
        probabilities = saved.predict_proba(data)
        assert probabilities == pytest.approx(model.predict_proba(graph), abs=1e-5)
        assert (saved.predict(data) == model.predict(graph)).mean() > 0.98
    assert model.score(store) == pytest.approx(model.score(graph))
    assert model.calibration_.temperature == pytest.approx(
        expected.calibration_.temperature, rel=1e-3
    )


def test_everything_that_a_prediction_offers_works_on_a_store(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", num_classes=2, node_id=True)
    graph, model = store.load(), fitted(store)
    reader = model.prepare(store)
    for name in ("predict_proba", "decision_function", "embed", "novelty_score"):
        found, expected = (getattr(model, name)(data) for data in (store, graph))
        assert found == pytest.approx(expected, abs=1e-4), name
        assert getattr(model, name)(reader) == pytest.approx(found)
    assert model.recall_at_k(store, 20) == pytest.approx(model.recall_at_k(graph, 20))
    assert model.predict(store, threshold="best").shape == (NUM_NODES,)
    assert model.predict_proba(store, calibrated=True).sum(1) == pytest.approx(np.ones(NUM_NODES))
    some = ["node 90", "node 4", "node 4"]
    assert model.predict_proba(store, some) == pytest.approx(
        model.predict_proba(store)[[90, 4, 4]], abs=1e-6
    )
    mask = np.arange(NUM_NODES) % 9 == 0
    assert (model.predict(store, mask) == model.predict(store)[mask]).all()
    assert model.predict(store, []).shape == (0,)
    assert model.score(store, mask) == pytest.approx(model.score(graph, mask))


def test_some_nodes_read_only_their_neighbourhood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GraphStoreWriter(tmp_path / "path", 1000) as writer:
        nodes = np.arange(999)
        writer.add_edges(nodes, nodes + 1)
        writer.add_features(np.random.default_rng(0).random((1000, 3)))
        writer.set_labels(np.arange(1000) % 2)
    store = GraphStore(tmp_path / "path")
    model = fitted(store, epochs=1, batch_size=1000)
    read: list[int] = []
    rows = RowReader.rows

    def recorded(reader: RowReader, ids: torch.Tensor) -> Features:
        read.extend(ids.tolist())
        return rows(reader, ids)

    monkeypatch.setattr(RowReader, "rows", recorded)
    model.predict(store, [500])
    assert read == [498, 499, 500]


def test_without_batches_a_store_is_a_graph_in_memory(store: GraphStore) -> None:
    settings: dict[str, Any] = {"batch_size": 0, "fanout": "all"}
    found, expected = (fitted(data, **settings) for data in (store, store.load()))
    assert found.history_ == expected.history_
    quick = NodeClassifier(preset="fast", device="cpu").fit(store)
    assert quick.predict_proba(store) == pytest.approx(quick.predict_proba(store.load()), abs=1e-5)
    with pytest.raises(InputError, match="environments"):
        found.environments(store)


def test_edges_in_one_direction_do_not_fit_an_undirected_model(
    tmp_path: Path, store: GraphStore
) -> None:
    with GraphStoreWriter(tmp_path / "one way", num_nodes=3) as writer:
        writer.add_edges([0, 1], [1, 2])
        writer.add_features(np.zeros((3, store.num_features), np.float32))
    model, other = NodeClassifier("linear", undirected=True), GraphStore(tmp_path / "one way")
    with pytest.raises(InputError, match="none back"):
        model.fit(other)
    model.fit(store.load())
    for use in (model.predict, partial(canet.diagnose, model)):
        with pytest.raises(InputError, match="none back"):
            use(other)


def test_a_model_of_an_undirected_store_uses_both_directions(tmp_path: Path) -> None:
    ends, x = np.random.default_rng(0).integers(0, 40, (2, 80)), np.eye(40, 4, dtype=np.float32)
    with GraphStoreWriter(tmp_path / "store", 40, undirected=True) as writer:
        writer.add_edges(*ends)
        writer.add_features(x)
        writer.set_labels(np.arange(40) % 2)
    data = Data(torch.from_numpy(x), torch.from_numpy(ends), y=torch.arange(40) % 2)
    model = NodeClassifier("linear").fit(tmp_path / "store")
    model.save(tmp_path / "model")
    expected = NodeClassifier("linear", undirected=True).fit(data).predict_proba(data)
    for one in (model, canet.load(tmp_path / "model")):
        assert one.predict_proba(data) == pytest.approx(expected, abs=1e-6)


def test_training_continues_on_another_store(tmp_path: Path, model: NodeClassifier) -> None:
    other = write_store(tmp_path / "store", kind="half")
    again = clone(model).set_params(epochs=1, learning_rate=1e-9).fit(other, warm_start=model)
    before = model.fitted_.state()[1]
    for name, weight in again.fitted_.state()[1].items():
        assert torch.allclose(weight, before[name], atol=1e-6)


@pytest.mark.parametrize(
    "argument",
    [{"label": "y"}, {"train": [1]}, {"environment": np.zeros(NUM_NODES)}, {"batch": [0]}],
    ids=str,
)
def test_arguments_about_columns_are_rejected(store: GraphStore, argument: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(argument))):
        NodeClassifier("erm", batch_size=16).fit(store, **argument)


def test_a_store_must_fit_to_the_model(
    tmp_path: Path, store: GraphStore, model: NodeClassifier
) -> None:
    with GraphStoreWriter(tmp_path / "narrow", 3) as writer:
        writer.add_features(np.ones((3, 2)))
    narrow = GraphStore(tmp_path / "narrow")
    with pytest.raises(InputError, match="2 features"):
        model.predict(narrow)
    with pytest.raises(InputError, match="batch"):
        model.predict(store, batch=np.zeros(NUM_NODES))
    both_ways = fitted(store, undirected=True, epochs=1)
    with pytest.raises(InputError, match="undirected"):
        both_ways.predict(write_store(tmp_path / "one way", undirected=False))


def test_attention_over_whole_graphs_is_exact_on_a_store(store: GraphStore) -> None:
    attends = NodeClassifier("erm", "transformer", epochs=2, device="cpu").fit(store)
    found = [attends.predict_proba(graph) for graph in (store, store.load())]
    assert np.allclose(*found, atol=1e-5)


@needs_gpu
def test_a_gpu_trains_on_a_store_as_on_the_graph_in_memory(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", weighted=True)
    found, expected = (fitted(data, device="cuda", dropout=0.0) for data in (store, store.load()))
    assert found.history_["loss"] == pytest.approx(expected.history_["loss"], abs=1e-4)
    assert found.predict_proba(store) == pytest.approx(expected.predict_proba(store), abs=1e-3)


def test_linear_models_trees_and_networks_predict_a_store_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = (Recipe("linear"), Recipe("trees"), Recipe("erm", "sage"), Recipe("canet", "gcn"))
    monkeypatch.setitem(portfolio.PRESETS, "robust", recipes)
    monkeypatch.setattr(auto, "weights_of", lambda found: [1 / 4] * 4)
    store = write_store(tmp_path / "store", weighted=True)
    model = NodeClassifier(epochs=3, hidden=8, device="cpu").fit(store)
    expected = model.predict_proba(store.load())
    assert model.predict_proba(store) == pytest.approx(expected, abs=1e-5)
    parts = list(model.fitted_.parts(model.prepare(store).graph))
    assert len(parts) > 1
    assert model.predict_proba(store, [90, 3]) == pytest.approx(expected[[90, 3]], abs=1e-5)


@needs_gpu
@pytest.mark.parametrize("some", [None, [90], list(range(0, NUM_NODES, 7))], ids=["all", "1", "18"])
@pytest.mark.parametrize("room", [True, False], ids=["on the GPU", "not on the GPU"])
def test_models_of_an_ensemble_predict_a_store_on_a_gpu_as_on_the_cpu(
    tmp_path: Path, room: bool, some: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = (Recipe("erm", "transformer"), Recipe("canet", "gcn"), Recipe("erm", "sage"))
    monkeypatch.setitem(portfolio.PRESETS, "robust", recipes)
    monkeypatch.setattr(auto, "weights_of", lambda found: [1 / 3] * 3)
    store = write_store(tmp_path / "store", weighted=True)
    model = NodeClassifier(epochs=10, hidden=8, device="cpu").fit(store)
    assert len(model.fitted_.members) == 3
    model.save(tmp_path / "model")
    if not room:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 100))
    on_gpu = canet.load(tmp_path / "model", device="cuda")
    for name in ("predict_proba", "embed"):
        found, expected = (getattr(which, name)(store, some) for which in (on_gpu, model))
        assert found == pytest.approx(expected, abs=1e-4), name


def test_a_store_without_labels_is_predicted_but_not_scored(
    tmp_path: Path, model: NodeClassifier
) -> None:
    with GraphStoreWriter(tmp_path / "new", 3) as writer:
        writer.add_features(np.ones((3, 6)))
    new = GraphStore(tmp_path / "new")
    assert len(model.predict(new)) == 3
    with pytest.raises(InputError, match="labels"):
        model.score(new)
    with pytest.raises(InputError, match="labels"):
        fitted(new)


def nodes(count: int) -> str:
    rows = [f"{i},{i % 7},{('red', 'blue')[i % 2]},{'ab'[i % 2]}" for i in range(count)]
    return "\n".join(["id,age,colour,kind", *rows])


def write_tables(path: Path, encoding: Any = None) -> GraphStore:
    data = read_columns(path, ReadOptions(Roles(label="kind")), encoding)
    with GraphStoreWriter(path.with_suffix(".store"), len(data.node_id)) as writer:
        writer.add_edges(*data.edge_index)
        writer.add_features(data.x)
        writer.set_labels(data.y)
        writer.set_encoding(data.encoding)
    return GraphStore(path.with_suffix(".store"))


def test_a_store_with_another_encoding_is_rejected(tmp_path: Path) -> None:
    second = write_folder(tmp_path / "b", nodes(40), EDGES)
    store = write_tables(write_folder(tmp_path / "a", nodes(60), EDGES))
    model = fitted(store)
    assert model.feature_names_in_.tolist() == list(store.encoding.names)
    with pytest.raises(InputError, match="--like"):
        model.predict(write_tables(second))
    with pytest.raises(InputError, match="--like"):
        canet.diagnose(model, new_data=GraphStore(second.with_suffix(".store")))
    second.with_suffix(".store").rename(tmp_path / "old")
    like = write_tables(second, store.encoding)
    assert len(model.predict(like)) == like.num_nodes
    assert (model.predict(like) == model.predict(second)).mean() > 0.95


def test_a_store_is_diagnosed_as_the_graph_in_memory(
    store: GraphStore, model: NodeClassifier
) -> None:
    found, expected = (
        canet.diagnose(model, data, repeats=2).to_dict() for data in (store, store.load())
    )
    assert found["graphs"] == expected["graphs"]
    assert found["reliance"] == expected["reliance"]

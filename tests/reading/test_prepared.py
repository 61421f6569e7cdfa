from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import canet
from canet.data.graph import checked_graph
from canet.data.raw_graph import RawGraph
from canet.nn import Operator
from canet.reading import prepared
from canet.reading.prepared import PreparedGraph
from tests.support.user_graphs import small_user_graph

QUICK = {"method": "canet", "epochs": 3, "hidden": 8, "device": "cpu", "verbose": 0}


def light(data: Data) -> RawGraph:
    return RawGraph(**data.to_dict())


@pytest.mark.parametrize("form", [Data.clone, light])
def test_the_same_graph_is_checked_once(form: Callable[[Data], Any]) -> None:
    data = form(small_user_graph())
    first = checked_graph(data)
    assert checked_graph(data) is first
    assert checked_graph(data, undirected=True) is not first
    assert checked_graph(form(small_user_graph())) is not first


def replace_x(data: Data) -> None:
    data.x = data.x + 1


def change_x(data: Data) -> None:
    data.x[0, 0] += 1


def change_sparse(data: Data) -> None:
    data.x.values().add_(1)


def change_edges(data: Data) -> None:
    data.edge_index[0, 0] = (data.edge_index[0, 0] + 1) % len(data.x)


def add_batch(data: Data) -> None:
    data.batch = torch.arange(len(data.x)) % 2


@pytest.mark.parametrize("change", [replace_x, change_x, change_sparse, change_edges, add_batch])
def test_a_graph_that_was_changed_is_checked_again(change: Callable[[Data], None]) -> None:
    data = small_user_graph()
    if change is change_sparse:
        data.x = data.x.to_sparse_csr()
    first = checked_graph(data)
    change(data)
    again = checked_graph(data)
    assert again is not first
    fresh = checked_graph(Data(**data.to_dict()))
    assert again.x.to_dense().equal(fresh.x.to_dense())
    assert again.edge_index.equal(fresh.edge_index)


def test_arrays_of_numpy_are_read_again_each_time() -> None:
    data = small_user_graph()
    data.x = data.x.numpy()
    first = checked_graph(data).x.clone()
    data.x += 1
    assert not checked_graph(data).x.equal(first)


def test_a_prepared_graph_is_released_with_the_graph() -> None:
    data = small_user_graph()
    kept = ref(PreparedGraph.of(checked_graph(data)))
    assert kept() is not None
    del data
    assert kept() is None


def test_prediction_after_fit_prepares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_user_graph()
    model = canet.NodeClassifier(**QUICK).fit(data)
    expected = model.predict_proba(data.clone())

    def never(*args: Any) -> None:
        raise AssertionError("prepared again")

    for name in ("data.graph.check_graph", "reading.prepared.Graph"):
        monkeypatch.setattr(f"canet.{name}", never)
    assert np.array_equal(model.predict_proba(data), expected)
    model.score(data)
    model.embed(data, nodes=[0, 1])


def test_threads_share_a_prepared_graph() -> None:
    data = small_user_graph()
    model = canet.NodeClassifier(**QUICK).fit(data)
    prepared, nodes = model.prepare(data), range(len(data.x))
    alone = [model.predict_proba(prepared, nodes=[node]) for node in nodes]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda node: model.predict_proba(prepared, nodes=[node]), nodes))
    assert np.array_equal(alone, together)


def test_edges_are_pinned_once_for_all_models(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[torch.Tensor] = []
    monkeypatch.setattr(prepared, "has_room", lambda size, device: device.type == "cpu" or size < 0)
    monkeypatch.setattr(prepared, "pinned", lambda col: copies.append(col) or col)
    graph = PreparedGraph.of(checked_graph(small_user_graph()))
    monkeypatch.setattr(prepared, "BYTES_PER_NODE", -1)
    for _ in range(2):
        graph.graph_to_draw([Operator("sum")], torch.device("cuda"))
    assert len(copies) == 1

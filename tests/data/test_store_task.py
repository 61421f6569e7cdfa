"""Tasks of graph stores, and stores in place of user graphs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from canet import GraphStore, GraphStoreWriter
from canet.data import load_task
from canet.data.graph import check_graph, match_classes
from canet.data.graph_files import ReadOptions, Roles, read_columns
from canet.data.user_task import user_task
from canet.errors import InputError
from tests.support.stores import NAMES, NUM_NODES, never_load, write_store


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"splits": ("train", "test")},
        {"splits": ()},
        {"splits": (), "time": np.arange(NUM_NODES) % 11},
        {"environment": np.array(["n", "s"])[np.arange(NUM_NODES) % 2]},
        {"sample_weight": np.arange(NUM_NODES, dtype=float)},
    ],
    ids=str,
)
def test_a_store_has_the_task_of_the_same_graph_in_memory(
    tmp_path: Path, parts: dict[str, Any]
) -> None:
    store = write_store(tmp_path / "store", **parts)
    found, expected = user_task(store.open(), seed=4), user_task(store.load(), seed=4)
    assert found.classes.tolist() == expected.classes.tolist() == NAMES.tolist()
    mine, theirs = found.task, expected.task
    assert torch.equal(mine.train, theirs.train)
    assert torch.equal(mine.valid, theirs.valid)
    assert torch.equal(mine.test_id, theirs.test_id)
    assert torch.equal(mine.data.y, theirs.data.y)
    assert mine.environments == theirs.environments
    for name in ("environment", "sample_weight"):
        columns = [task.data.get(name) for task in (mine, theirs)]
        assert columns[0] is columns[1] is None or torch.equal(*columns)


def test_a_task_reads_neither_edges_nor_all_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store")
    never_load(monkeypatch)
    task = load_task(str(tmp_path / "store"))
    assert task.data.edge_index is None
    assert list(task.splits()) == ["train", "valid", "ood/far", "ood/test"]
    assert task.digest.graph == store.digest.graph


def test_a_task_in_memory_has_the_digest_and_the_graph_of_the_store(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", splits=())
    task = user_task(store.open(), seed=0).task
    assert task.in_memory().digest == task.digest
    for change in ({"seed": 1}, {"metric": "macro_f1"}):
        other = user_task(store.open(), **change).task.digest
        assert other.differs_in(task.digest) == "splits"
    store = write_store(tmp_path / "half", weighted=True, kind="half")
    task, graph = user_task(store.open()).task.in_memory(), store.load()
    assert not task.data.is_on_disk
    assert task.in_memory() is task
    assert torch.equal(task.data.edge_index, graph.edge_index)
    assert torch.equal(task.data.edge_weight, graph.edge_weight)
    assert task.data.x.dtype == torch.float32


def test_classes_in_another_order_are_sorted(tmp_path: Path) -> None:
    with GraphStoreWriter(tmp_path / "store", 6) as writer:
        writer.add_features(np.ones((6, 1)))
        writer.set_labels(np.array([0, 1, 0, 1, -1, 0]), classes=["b", "a"])
        writer.set_split(np.array(["train", "train", "valid", "valid", "train", "train"]))
    store = GraphStore(tmp_path / "store")
    task, classes, _ = user_task(store.open())
    assert classes.tolist() == ["a", "b"]
    assert task.data.y.tolist() == [1, 0, 1, 0, -1, 1]
    y = match_classes(store.open().y, 6, np.array(["a", "c"]))
    assert y.tolist() == [2, 0, 2, 0, -1, 2]


def test_a_store_without_labels_is_rejected(tmp_path: Path) -> None:
    with GraphStoreWriter(tmp_path / "store", 3) as writer:
        writer.add_features(np.ones((3, 1)))
    with pytest.raises(InputError, match="labels"):
        load_task(str(tmp_path / "store"))
    with pytest.raises(InputError, match="does not exist"):
        load_task(str(tmp_path / "nowhere"))


def test_known_classes_must_contain_those_of_the_store(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    kept = user_task(store.open(), known_classes=np.array([*NAMES, "dog"]))
    assert kept.task.num_classes == 4
    with pytest.raises(InputError, match="cat"):
        user_task(store.open(), known_classes=NAMES[:2])


def test_nodes_are_found_by_name_or_row(tmp_path: Path) -> None:
    named = check_graph(write_store(tmp_path / "named", node_id=True).open())
    assert named.rows(["node 7", "node 3"]).tolist() == [7, 3]
    assert named.names(np.array([2])).tolist() == ["node 2"]
    plain = check_graph(write_store(tmp_path / "plain").open())
    assert plain.rows(["7", "3"]).tolist() == [7, 3]
    for wrong in (["node 999"], [NUM_NODES]):
        with pytest.raises(InputError):
            named.rows(wrong)
        with pytest.raises(InputError):
            plain.rows(wrong)


def test_a_store_is_read_like_any_graph_but_not_with_other_columns(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    assert torch.equal(read_columns(tmp_path / "store", ReadOptions()).x, store.load().x)
    with pytest.raises(InputError, match="convert"):
        read_columns(tmp_path / "store", ReadOptions(Roles(label="kind")))


def test_the_loaded_graph_of_a_task_is_a_graph_in_memory_for_a_user(tmp_path: Path) -> None:
    write_store(tmp_path / "store")
    loaded = load_task(str(tmp_path / "store")).in_memory().data
    found = check_graph(loaded)
    assert found.edge_index.equal(loaded.edge_index)
    assert found.x.to_dense().equal(loaded.x.to_dense())
    assert "csr" not in loaded
    assert "y" in loaded

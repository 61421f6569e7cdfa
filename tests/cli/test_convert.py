"""`canet convert`: tables, arrays and PyG files become stores; `canet verify` checks them."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from canet import GraphStore, GraphStoreWriter
from canet.cli.convert import STEPS
from canet.data.graph_files import ReadOptions, Roles, read_columns, write_npz
from canet.data.raw_graph import RawGraph
from canet.util import progress
from tests.support.commands import Canet
from tests.support.user_graphs import small_user_graph
from tests.support.user_tables import NODES, ROLES, write_folder

COLUMNS = ("--label", "kind", "--time", "when", "--environment", "region")


def edges_of(data: RawGraph) -> list[tuple[int, int]]:
    return sorted(set(zip(*data.edge_index.tolist(), strict=True)))


def assert_same(store: GraphStore, data: RawGraph) -> None:
    """The store, loaded, is the graph, except for the order of its edges."""
    loaded = store.load()
    assert edges_of(loaded) == edges_of(data)
    assert loaded.x.layout == data.x.layout
    assert torch.equal(loaded.x.to_dense(), data.x.to_dense())
    for name in ("y", "environment", "time", "node_id"):
        assert (name in loaded) == (name in data), name
        if name in data:
            assert loaded[name].tolist() == data[name].tolist(), name
    for name in ("train_mask", "val_mask", "test_mask"):
        assert (name in loaded) == (name in data), name
        if name in data:
            assert torch.equal(loaded[name], data[name]), name
    assert loaded.get("encoding") == data.get("encoding")


def test_tables_become_a_store_with_their_encoding(work: Path, canet: Canet) -> None:
    write_folder(work / "graph")
    answer = canet("convert", "graph", *COLUMNS, "--out", "store")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("4 nodes, 4 edges, 4 features, 0.0 MB")
    assert "Splits: train 2, valid 1, test 1 nodes\n" in answer.out
    assert "To train: canet fit store --out MODEL" in answer.out
    store = GraphStore(work / "store")
    assert store.encoding is not None
    assert_same(store, read_columns(work / "graph", ReadOptions(Roles(**ROLES))))


def test_a_long_conversion_shows_its_steps(
    work: Path, canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[tuple[int, str]]()

    def update(_: progress.Display, done: int, text: str) -> None:
        steps.append((done, text))

    monkeypatch.setattr(progress.Display, "update", update)
    write_folder(work / "graph")
    assert canet("convert", "graph", *COLUMNS, "--out", "store").code == 0
    assert steps == list(enumerate(STEPS))


@pytest.mark.parametrize("sparse", [False, True])
def test_array_files_become_a_store(work: Path, canet: Canet, sparse: bool) -> None:
    write_npz(work / "graph.npz", small_user_graph(sparse=sparse))
    assert canet("convert", "graph.npz", "--out", "store").code == 0
    assert_same(GraphStore(work / "store"), read_columns(work / "graph.npz", ReadOptions()))


def test_features_can_be_written_as_float16(work: Path, canet: Canet) -> None:
    data = small_user_graph()
    write_npz(work / "graph.npz", data)
    assert canet("convert", "graph.npz", "--half", "--out", "store").code == 0
    assert torch.equal(GraphStore(work / "store").x, data.x.half())
    data.x[3, 1] = 1e5
    write_npz(work / "graph.npz", data)
    assert "--half" in canet("convert", "graph.npz", "--half", "--out", "b").complaint
    write_npz(work / "graph.npz", small_user_graph(sparse=True))
    assert "--half" in canet("convert", "graph.npz", "--half", "--out", "b").complaint
    assert [path.name for path in work.iterdir() if path.suffix != ".npz"] == ["store"]


def test_edges_are_read_in_both_directions_on_request(work: Path, canet: Canet) -> None:
    write_folder(work / "graph")
    assert canet("convert", "graph", "--undirected", "--out", "store").code == 0
    both = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 3)]
    assert edges_of(GraphStore(work / "store").load()) == both


def test_the_next_graph_is_encoded_like_the_first(work: Path, canet: Canet) -> None:
    write_folder(work / "may")
    write_folder(work / "june", NODES.replace("blue", "red").replace("10", "1000"))
    assert canet("convert", "may", *COLUMNS, "--out", "may-store").code == 0
    like = canet("convert", "june", *COLUMNS, "--like", "may-store", "--out", "june-store")
    assert like.code == 0
    may, june = GraphStore(work / "may-store"), GraphStore(work / "june-store")
    assert june.encoding == may.encoding
    assert torch.equal(june.x[2:], may.x[2:])
    write_npz(work / "arrays.npz", small_user_graph())
    wrong = canet("convert", "arrays.npz", "--like", "may-store", "--out", "other")
    assert "table" in wrong.complaint
    assert canet("convert", "arrays.npz", "--out", "arrays").code == 0
    assert "arrays" in canet("convert", "may", "--like", "arrays", "--out", "other").complaint


def write_arrays(folder: Path, **arrays: Any) -> dict[str, np.ndarray]:
    folder.mkdir(exist_ok=True)
    found = {name: np.asarray(values) for name, values in arrays.items()}
    for name, values in found.items():
        np.save(folder / f"{name}.npy", values)
    return found


def test_a_folder_of_arrays_is_converted(work: Path, canet: Canet) -> None:
    arrays = write_arrays(
        work / "graph",
        edge_index=[[0, 1, 2, 2], [1, 2, 0, 2]],
        edge_weight=[1.0, 2.0, 3.0, 4.0],
        x=np.arange(6.0).reshape(3, 2),
        y=["a", "", "b"],
        split=["train", "valid", "2024"],
        time=np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="datetime64[D]"),
        region=[1, 1, 2],
    )
    answer = canet("convert", "graph", "--environment", "region", "--out", "store")
    assert (answer.code, answer.err) == (0, "")
    data = GraphStore(work / "store").load()
    assert torch.equal(data.x, torch.from_numpy(arrays["x"]).float())
    found = zip(*data.edge_index.tolist(), data.edge_weight.tolist(), strict=True)
    assert set(found) == {(0, 1, 1.0), (1, 2, 2.0), (2, 0, 3.0), (2, 2, 4.0)}
    assert data.y.tolist() == ["a", None, "b"]
    assert data.environment.tolist() == [1, 1, 2]
    assert data.time[1] - data.time[0] == 24 * 3600
    assert GraphStore(work / "store").splits == ["train", "valid", "2024"]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_weights_of_edges_may_have_another_name(work: Path, canet: Canet, kind: str) -> None:
    arrays: dict[str, Any] = {"edge_index": [[0, 1], [1, 2]], "x": np.eye(3), "y": [0, 1, 0]}
    arrays["strength"] = [0.5, 2.0]
    if kind == "folder":
        write_arrays(work / "graph", **arrays)
    else:
        np.savez(work / "graph.npz", **arrays)
    path = "graph" if kind == "folder" else "graph.npz"
    answer = canet("convert", path, "--weight", "strength", "--undirected", "--out", "store")
    assert (answer.code, answer.err) == (0, "")
    assert set(GraphStore(work / "store").load().edge_weight.tolist()) == {0.5, 2.0}
    wrong = canet("convert", path, "--weight", "strenght", "--out", "other")
    assert "did you mean 'strength'?" in wrong.complaint
    wrong = canet("convert", path, "--source", "from", "--out", "other")
    assert "edge_index" in wrong.complaint


@pytest.mark.filterwarnings("default:.*batch is left out")
def test_a_graph_number_of_nodes_is_left_out(work: Path, canet: Canet) -> None:
    write_arrays(work / "graph", edge_index=[[0], [1]], x=np.eye(2), batch=[0, 0])
    answer = canet("convert", "graph", "--out", "store")
    assert (answer.code, "batch is left out" in answer.err) == (0, True)


def test_a_graph_without_splits_and_labels_gets_none(work: Path, canet: Canet) -> None:
    write_arrays(work / "graph", edge_index=[[0, 1], [1, 5]])
    assert canet("convert", "graph", "--out", "store").code == 0
    store = GraphStore(work / "store")
    assert (store.num_nodes, store.classes, store.splits) == (6, [], [])
    assert "split" not in store
    assert "labels" not in store


@pytest.mark.parametrize(
    ("arrays", "name"),
    [
        ({"edge_index": [[0, 9], [1, 1]], "x": np.zeros((3, 2))}, "node 9"),
        ({"edge_index": [[0, 1, 2]], "x": np.zeros((3, 2))}, "edge_index"),
        ({"edge_index": [[0], [1]], "x": np.zeros((3, 2)), "y": [0, 1]}, "y has shape"),
        ({"edge_index": [[0], [1]], "x": np.full((3, 2), np.nan)}, "NaN"),
    ],
)
def test_wrong_arrays_are_one_line_and_leave_nothing(
    work: Path, canet: Canet, arrays: dict[str, Any], name: str
) -> None:
    write_arrays(work / "graph", **arrays)
    assert name in canet("convert", "graph", "--out", "store").complaint
    assert [path.name for path in work.iterdir()] == ["graph"]


def test_python_objects_are_not_read(work: Path, canet: Canet) -> None:
    write_arrays(work / "graph", edge_index=[[0], [1]])
    np.save(work / "graph" / "y.npy", np.array([print, None]), allow_pickle=True)
    assert "y.npy" in canet("convert", "graph", "--out", "store").complaint


def test_an_existing_folder_is_an_error_before_the_graph_is_read(work: Path, canet: Canet) -> None:
    (work / "store").mkdir()
    assert "store" in canet("convert", "nowhere", "--out", "store").complaint


def test_verify_counts_stores_and_names_changed_files(work: Path, canet: Canet) -> None:
    write_folder(work / "graph")
    for name in ("a", "b"):
        assert canet("convert", "graph", *COLUMNS, "--out", f"stores/{name}").code == 0
    answer = canet("verify", "stores")
    assert (answer.code, answer.out) == (0, "0 finished run(s), 2 graph store(s): no problems\n")
    assert canet("verify", "stores/a").code == 0
    for name in ("features.npy", "index.json"):
        path = work / "stores" / "b" / name
        raw = path.read_bytes()
        path.write_bytes(raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:])
        answer = canet("verify", "stores")
        assert answer.code == 2
        line, count = answer.out.splitlines()
        assert f"{name}'" in line
        assert count == "0 finished run(s), 2 graph store(s): 1 problem(s)"
        path.write_bytes(raw)


def test_a_store_is_inspected_before_it_is_converted(work: Path, canet: Canet) -> None:
    write_folder(work / "graph")
    assert canet("convert", "graph", *COLUMNS, "--out", "store").code == 0
    assert "is a graph store" in canet("inspect", "store").complaint


def test_devices_and_pipes_are_not_read(work: Path, canet: Canet) -> None:
    write_arrays(work / "graph", edge_index=[[0], [1]])
    (work / "graph" / "x.npy").symlink_to("/dev/zero")
    assert "x.npy" in canet("convert", "graph", "--out", "store").complaint
    (work / "graph" / "x.npy").unlink()
    os.mkfifo(work / "graph" / "x.npy")
    assert "x.npy" in canet("convert", "graph", "--out", "store").complaint


def test_the_folder_of_a_killed_conversion_is_named_and_removed(
    work: Path, canet: Canet, caplog: pytest.LogCaptureFixture
) -> None:
    write_arrays(work / "graph", edge_index=[[0], [1]], x=np.zeros((2, 2)))
    with GraphStoreWriter(work / "store", 2):  # another process that is alive
        (alive,) = work.glob(".store.*")
        child = os.fork()
        if not child:
            GraphStoreWriter(work / "store", 2).__enter__().add_features([[1.0], [2.0]])
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        (left,) = set(work.glob(".store.*")) - {alive}
        canet("convert", "graph", "--out", "store")
        assert left.name in caplog.text
        assert not left.exists()
        assert alive.exists()
        shutil.rmtree(work / "store")
    assert not list(work.glob(".*"))
    assert sorted(path.suffix for path in (work / "store").iterdir()) == [".json", ".npy", ".npy"]

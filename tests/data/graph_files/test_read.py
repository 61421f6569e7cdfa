import contextlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import canet
from canet.data.graph_files import folder as folder_reader
from canet.data.graph_files import read_graph, write_npz
from canet.data.graph_files.inspection import inspect_graph
from canet.errors import CanetError, InputError, InputWarning
from tests.support.user_tables import EDGES, NODES, ROLES, write_folder, write_university


def as_parquet(folder: Path, target: Path) -> Path:
    """The tables of a folder as Parquet files, converted by pyarrow."""
    target.mkdir()
    for name in ("nodes", "edges"):
        pq.write_table(pa_csv.read_csv(folder / f"{name}.csv"), target / f"{name}.parquet")
    return target


def as_pt(data: Data, path: Path) -> Path:
    """A `.pt` file with tensors and lists only."""
    plain = Data(x=data.x, edge_index=data.edge_index, y=["" if y is None else y for y in data.y])
    for name in ("train_mask", "val_mask", "test_mask"):
        plain[name] = data[name]
    plain.environment, plain.id = data.environment.tolist(), data.node_id.tolist()
    plain.time = torch.from_numpy(data.time)
    torch.save(plain, path)
    return path


def assert_same(a: Data, b: Data) -> None:
    for name in ("x", "edge_index", "train_mask", "val_mask", "test_mask"):
        assert a[name].dtype == b[name].dtype
        assert a[name].equal(b[name]), name
    for name in ("y", "environment", "time", "node_id"):
        assert a[name].dtype == b[name].dtype
        assert a[name].tolist() == b[name].tolist(), name


def test_a_folder_of_tables_becomes_a_graph(tmp_path: Path) -> None:
    data = read_graph(write_folder(tmp_path / "graph"), **ROLES)
    assert data.edge_index.tolist() == [[0, 1, 2, 3], [1, 2, 3, 3]]
    age = (np.array([10, 20, 30, 90]) - 20) / np.std([10, 20, 30])
    expected = np.stack([age, [0, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]], axis=1)
    np.testing.assert_allclose(data.x, expected, rtol=1e-6)
    assert data.encoding.names == ["age", "colour=blue", "colour=red", "vip"]
    assert data.y.tolist() == ["good", "bad", "good", None]
    assert data.environment.tolist() == ["north", "north", "south", "south"]
    assert np.diff(data.time).tolist() == [24 * 60 * 60] * 3
    assert data.node_id.tolist() == ["ann", "bob", "cat", "dan"]
    assert data.train_mask.tolist() == [True, True, False, False]
    assert data.val_mask.tolist() == [False, False, True, False]
    assert data.test_mask.tolist() == [False, False, False, True]
    assert data.num_nodes == 4


def test_the_same_graph_in_every_format_gives_the_same_data(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph")
    data = read_graph(folder, **ROLES)
    assert_same(read_graph(as_parquet(folder, tmp_path / "parquet"), **ROLES), data)
    write_npz(tmp_path / "graph.npz", data)
    again = read_graph(tmp_path / "graph.npz")
    assert_same(again, data)
    assert again.encoding == data.encoding
    assert_same(read_graph(as_pt(data, tmp_path / "graph.pt")), data)


@pytest.mark.parametrize("ids", [[7, 5, 6], [10**9, -3, 4], ["007", "x", "7"], ["a b", "é", "z"]])
def test_ids_may_be_any_integers_or_text_and_are_rows_without_a_column(
    tmp_path: Path, ids: list[Any]
) -> None:
    nodes = "key,a\n" + "".join(f"{identity},{row}\n" for row, identity in enumerate(ids))
    edges = f"source,target\n{ids[0]},{ids[2]}\n{ids[1]},{ids[0]}\n"
    data = read_graph(write_folder(tmp_path, nodes, edges), id="key")
    assert data.edge_index.tolist() == [[0, 1], [2, 0]]
    assert data.node_id.tolist() == ids
    rows = read_graph(write_folder(tmp_path, "a\n1\n2\n5\n", "source,target\n0,2\n2.0,1\n"))
    assert rows.edge_index.tolist() == [[0, 2], [2, 1]]
    assert rows.node_id.tolist() == [0, 1, 2]


def test_the_encoding_of_training_is_applied_to_a_later_graph(tmp_path: Path) -> None:
    data = read_graph(write_folder(tmp_path / "old"), **ROLES)
    nodes = "when,vip,colour,age,id\n2024-02-01,False,red,20,eve\n2024-02-02,True,blue,30,fay\n"
    folder = write_folder(tmp_path / "new", nodes, "source,target\neve,fay\n")
    later = read_graph(folder, encoding=data.encoding)
    assert later.x[0].tolist() == [0, 0, 1, 0]
    assert later.x[1].tolist() == [float(data.x[2, 0]), 1, 0, 1]
    assert later.encoding == data.encoding
    assert "time" in later
    assert "y" not in later
    with pytest.raises(InputError, match="no column 'kind'"):
        read_graph(folder, label="kind", encoding=data.encoding)


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_a_model_reads_the_arrays_that_it_was_trained_on(tmp_path: Path, suffix: str) -> None:
    random = np.random.default_rng(0)
    own = {"edge_index": random.integers(0, 40, (2, 120)), "x": random.normal(size=(40, 3))}
    others = {"kind": np.arange(40) % 2, "amount": random.random(120), "key": np.arange(40) + 100}

    def written(name: str, **arrays: np.ndarray) -> Path:
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "npz":
            np.savez(path, **arrays)
        else:
            torch.save(Data(**{k: torch.from_numpy(v) for k, v in arrays.items()}), path)
        return path

    graph = written("graph", **own, **others)
    model, other = (canet.NodeClassifier("erm", epochs=2, undirected=True) for _ in range(2))
    model.fit(graph, label="kind", weight="amount", id="key").save(tmp_path / "model")
    standard = {"y": others["kind"], "edge_weight": others["amount"], "node_id": others["key"]}
    expected = other.fit(path := written("standard", **own, **standard)).predict_proba(path)
    loaded = canet.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(graph), expected)
    assert loaded.predict_proba(graph, nodes=["103"]) == pytest.approx(expected[3:4], abs=1e-6)
    assert loaded.score(graph) == model.score(graph)
    unlabelled = written("unlabelled", **own, amount=others["amount"])
    assert np.array_equal(loaded.predict_proba(unlabelled), expected)
    with pytest.raises(InputError, match="no array 'amount'"):
        loaded.predict(written("unweighted", **own))


def test_a_weight_column_without_rows_has_no_weights(tmp_path: Path) -> None:
    graph = read_graph(write_folder(tmp_path, "a\n1\n2\n", "source,target,weight\n"))
    assert graph.edge_weight.shape == (0,)


def test_additional_columns_of_a_later_graph_are_ignored_with_a_warning(tmp_path: Path) -> None:
    encoding = read_graph(write_folder(tmp_path / "old"), **ROLES).encoding
    nodes = NODES.replace(",region", ",town").replace("blue", "pink")
    edges = EDGES.replace("\n", ",1\n").replace("target,1", "target,weight")
    with pytest.warns(InputWarning) as caught:
        read_graph(write_folder(tmp_path / "new", nodes, edges), encoding=encoding)
    lines = [str(warning.message) for warning in caught]
    assert [word in line for word, line in zip(("weight", "town", "1 cell"), lines, strict=True)]


def test_a_feature_matrix_is_rejected_if_the_encoding_needs_columns(tmp_path: Path) -> None:
    data = read_graph(write_folder(tmp_path / "graph"), **ROLES)
    write_npz(tmp_path / "own.npz", data)
    assert_same(read_graph(tmp_path / "own.npz", encoding=data.encoding), data)
    np.savez(tmp_path / "other.npz", x=data.x.numpy(), edge_index=data.edge_index.numpy())
    with pytest.raises(InputError, match="age, colour, vip"):
        read_graph(tmp_path / "other.npz", encoding=data.encoding)


def test_sparse_features_of_npz_stay_sparse(tmp_path: Path) -> None:
    x = sp.random(6, 40, density=0.1, format="csr", random_state=0)
    parts = {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": x.shape}
    np.savez(tmp_path / "graph.npz", edge_index=np.array([[0], [5]]), **parts)
    data = read_graph(tmp_path / "graph.npz")
    assert data.x.layout == torch.sparse_csr
    np.testing.assert_allclose(data.x.to_dense(), x.toarray(), rtol=1e-6)
    write_npz(tmp_path / "again.npz", data)
    assert read_graph(tmp_path / "again.npz").x.to_dense().equal(data.x.to_dense())


def test_arrays_may_have_other_names(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "graph.npz",
        x=np.eye(3),
        edge_index=np.array([[0, 1], [1, 2]], dtype=np.int32),
        target=np.array([1.0, np.nan, 0.0]),
        fold=np.array(["train", "validation", ""]),
        day=np.array(["2024-01-01", "2024-01-02", "2024-01-03"]),
        batch=np.array([0, 0, 1]),
    )
    data = read_graph(tmp_path / "graph.npz", label="target", split="fold", time="day")
    assert data.x.dtype == torch.float32
    assert data.edge_index.dtype == torch.int64
    assert data.y.tolist() == [1, -1, 0]
    assert data.val_mask.tolist() == [False, True, False]
    assert np.diff(data.time).tolist() == [86400, 86400]
    assert data.batch.tolist() == [0, 0, 1]


def test_arrays_that_are_not_used_give_a_warning(tmp_path: Path) -> None:
    torch.save(
        Data(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]), edge_attr=torch.ones(1, 1)),
        tmp_path / "graph.pt",
    )
    with pytest.warns(InputWarning, match="edge_attr"):
        read_graph(tmp_path / "graph.pt")


@pytest.mark.parametrize(
    ("nodes", "edges", "problem"),
    [
        (NODES.replace("bob,", "ann,"), EDGES, "'ann'"),
        (NODES.replace("bob,", ","), EDGES, "id.* row 2"),
        (NODES, EDGES + "ann,zoe\nyan,zoe\n", "2 of 6 edges .* target 'zoe' in row 5"),
        (NODES, "source,target\n,ann\n", "1 of 1 edges .* source '' in row 1"),
        (NODES, "one,other\nann,bob\n", "edges.csv' has no columns 'source', 'target'"),
        (NODES, "", "edges.csv"),
        (NODES.partition("\n")[0] + "\n", EDGES, "nodes.csv' has no rows"),
        (NODES.replace("valid", "later"), EDGES, r"'split' .*'later' \(row 3\)"),
        (NODES.replace("2024-01-03", "soon"), EDGES, r"'when' .*'soon' \(row 3\)"),
        (NODES.replace("2024-01-03", "7"), EDGES, r"'when' .*'7' \(row 3\)"),
        (NODES.replace("30", "inf"), EDGES, r"infinite .* 'age' \(1\)"),
        (
            NODES.replace("30,", "1e300,").replace("20,", "-1e300,"),
            EDGES,
            r"'age' .*1e\+300",
        ),
        (NODES.replace(",kind", ",Kind"), EDGES, "no column 'kind': did you mean 'Kind'"),
        (NODES.replace("10,red", "10"), EDGES, "line 2 .* 7 cells"),
    ],
)
def test_invalid_tables_are_rejected(tmp_path: Path, nodes: str, edges: str, problem: str) -> None:
    folder = write_folder(tmp_path, nodes, edges)
    with pytest.raises(InputError, match=problem):
        read_graph(folder, **ROLES)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"edge_index": np.array([[0], [3]])}, "graph.npz': edge_index"),
        ({"edge_index": np.zeros((3, 2))}, "graph.npz': edge_index"),
        ({"x": np.full((3, 2), np.nan)}, "graph.npz': x"),
        ({"x": np.array(["a", "b", "c"])}, "graph.npz': x"),
        ({"split": np.array(["train", "dev", ""])}, r"'split' .*'dev' \(row 2\)"),
        ({"train_mask": np.array([True])}, "graph.npz': train_mask"),
        ({"id": np.arange(2)}, r"ids of shape \[2\]"),
        ({"time": np.array(["soon", "", "later"])}, "'time' .*'soon'"),
        ({"y": np.array(3)}, "graph.npz': y"),
        ({"encoding": np.array("{}")}, "encoding"),
    ],
)
def test_invalid_arrays_are_rejected(
    tmp_path: Path, changes: dict[str, np.ndarray], problem: str
) -> None:
    arrays = {"x": np.eye(3), "edge_index": np.array([[0], [1]])}
    np.savez(tmp_path / "graph.npz", **arrays | changes)
    with pytest.raises(InputError, match=problem):
        read_graph(tmp_path / "graph.npz")


def test_a_graph_without_features_is_rejected(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "id,kind\nann,a\nbob,b\n", "source,target\nann,bob\n")
    with pytest.raises(InputError, match=r"nodes.csv"):
        read_graph(folder, label="kind")
    parts = {"x_data": np.ones(2), "x_indices": np.array([0, 9]), "x_indptr": np.array([0, 2])}
    for others, problem in (
        ({}, "no array 'x'"),
        (parts | {"x_shape": np.array([1, 5])}, "x_shape"),
    ):
        np.savez(tmp_path / "graph.npz", edge_index=np.zeros((2, 0)), y=np.zeros(3), **others)
        with pytest.raises(InputError, match=problem):
            read_graph(tmp_path / "graph.npz")


def test_missing_paths_and_other_files_are_rejected(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "graph.txt").write_text("")
    with pytest.raises(InputError, match="nowhere"):
        read_graph(tmp_path / "nowhere")
    with pytest.raises(InputError, match="folder"):
        read_graph(tmp_path / "nodes.csv")
    with pytest.raises(InputError, match=r"graph.txt"):
        read_graph(str(tmp_path / "graph.txt"))


def test_text_ids_of_one_table_match_integers_of_the_other(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["1", "2"], "a": [1.0, 2.0]}), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": [1], "target": [2]}), tmp_path / "edges.parquet")
    data = read_graph(tmp_path)
    assert data.edge_index.tolist() == [[0], [1]]
    assert data.node_id.tolist() == ["1", "2"]


def test_files_with_random_changes_give_a_graph_or_a_canet_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "csv")
    data = read_graph(folder, **ROLES)
    write_npz(tmp_path / "graph.npz", data)
    graphs = {tmp_path / "graph.npz": tmp_path / "graph.npz", folder / "nodes.csv": folder}
    pt = as_pt(data, tmp_path / "graph.pt")
    graphs |= {pt: pt, folder / "edges.csv": folder}
    random = np.random.default_rng(0)
    for path, graph in graphs.items():
        content = path.read_bytes()
        for _ in range(25):
            start, length = int(random.integers(len(content))), int(random.integers(1, 8))
            path.write_bytes(content[:start] + random.bytes(length) + content[start + length :])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)
                for read in (read_graph, inspect_graph):
                    with contextlib.suppress(CanetError):
                        read(graph)
        path.write_bytes(content)


def test_webkb_as_tables_is_a_small_sparse_graph(data_root: Path, tmp_path: Path) -> None:
    if not (data_root / "webkb").is_dir():
        pytest.skip("no webkb in CANET_DATA_ROOT")
    data = read_graph(write_university(data_root, "texas", tmp_path / "texas"), label="category")
    assert (data.num_nodes, data.x.shape[1]) == (183, 1703)
    assert data.x.layout == torch.sparse_csr
    lines = (data_root / "webkb/texas/out1_node_feature_label.txt").read_text().splitlines()[1:]
    words = np.array([[int(word) for word in line.split("\t")[1].split(",")] for line in lines])
    kept = words.min(axis=0) < words.max(axis=0)
    np.testing.assert_array_equal(data.x.to_dense().numpy(), words * kept)
    folder = write_university(data_root, "cornell", tmp_path / "cornell")
    later = read_graph(folder, encoding=data.encoding)
    assert later.x.shape == (183, 1703)
    assert later.x.layout == torch.sparse_csr
    assert len(later.y) == 183


def test_feature_columns_are_freed_before_edges_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, held = 20_000, []
    columns = {f"x{i}": np.random.default_rng(i).normal(size=rows) for i in range(20)}
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": [0], "target": [1]}), tmp_path / "edges.parquet")
    read_edges = folder_reader._read_edges

    def watch(*given: Any) -> np.ndarray:
        held.append(pa.total_allocated_bytes() - before)
        return read_edges(*given)

    monkeypatch.setattr(folder_reader, "_read_edges", watch)
    before = pa.total_allocated_bytes()
    assert read_graph(tmp_path).x.shape == (rows, 20)
    assert held[0] < 8 * rows * 20 / 2

"""Graph stores: the sort on disk, the arrays, opening, and changed or missing files."""

import errno
import os
import pickle
import resource
import tracemalloc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from canet import GraphStore, GraphStoreWriter
from canet.data.graph import check_graph
from canet.data.graph_files import ReadOptions, Roles, read_columns
from canet.data.graph_store import sorting
from canet.data.graph_store.index import FORMAT, INDEX, check_array
from canet.data.raw_graph import RawGraph
from canet.errors import (
    CanetError,
    ChecksumError,
    InputError,
    MissingFileError,
    VersionError,
)
from canet.util import memory
from canet.util.files import TEMPORARY_SUFFIX, WriteError
from canet.util.schema import pack_json
from tests.support.stores import write_store
from tests.support.user_tables import ROLES, write_folder

MIN_MEMORY = 2**12  # 85 edges at once


def random_edges(
    num_nodes: int, num_edges: int, seed: int = 0, hub: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources, targets and weights with duplicates and loops; a share goes into node 1."""
    random = np.random.default_rng(seed)
    source, target = random.integers(0, num_nodes, (2, num_edges))
    target[random.random(num_edges) < hub] = min(1, num_nodes - 1)
    weight = random.integers(0, 9, num_edges).astype(np.float32)
    return source, target, weight


def oracle(
    num_nodes: int, source: np.ndarray, target: np.ndarray, weight: np.ndarray | None
) -> dict[tuple[int, int], float]:
    """(Target, source) → largest weight, or 1."""
    found: dict[tuple[int, int], float] = {}
    weights = np.ones(len(source)) if weight is None else weight
    for s, t, w in zip(source.tolist(), target.tolist(), weights.tolist(), strict=True):
        found[t, s] = max(found.get((t, s), 0.0), w)
    return found


def stored(store: GraphStore) -> dict[tuple[int, int], float]:
    """The same from the arrays of a store; loops of weight 0 are no loops."""
    rowptr, neighbours = store.array("rowptr"), store.array("neighbours")
    assert (rowptr[0], rowptr[-1]) == (0, store.num_edges)
    found = {}
    for v in range(store.num_nodes):
        sources = neighbours[rowptr[v] : rowptr[v + 1]]
        assert (np.diff(sources) > 0).all()
        assert v not in sources
        for e in range(rowptr[v], rowptr[v + 1]):
            found[v, int(neighbours[e])] = float(
                store.array("weight")[e] if "weight" in store else 1
            )
    if "loops" in store:
        found |= {(v, v): float(w) for v, w in enumerate(store.array("loops")) if w}
    assert len(found) == store.num_edges + store.num_loops
    return found


def write_edges(
    path: Path,
    num_nodes: int,
    edges: tuple[np.ndarray, np.ndarray, np.ndarray | None],
    pieces: int = 1,
    **options: Any,
) -> GraphStore:
    with GraphStoreWriter(path, num_nodes, **options) as writer:
        for part in np.array_split(np.arange(len(edges[0])), pieces):
            writer.add_edges(*(None if values is None else values[part] for values in edges))
    return GraphStore(path)


def contents(store: GraphStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.path.iterdir()}


@settings(max_examples=20, deadline=None)
@given(
    num_nodes=st.integers(1, 300),
    num_edges=st.integers(0, 3000),
    hub=st.sampled_from([0.0, 0.5, 1.0]),
    weighted=st.booleans(),
    undirected=st.booleans(),
    seed=st.integers(0, 99),
)
def test_sorted_edges_are_those_of_a_dictionary(
    num_nodes: int,
    num_edges: int,
    hub: float,
    weighted: bool,
    undirected: bool,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    source, target, weight = random_edges(num_nodes, num_edges, seed, hub)
    given_weight = weight if weighted else None
    store = write_edges(
        tmp_path_factory.mktemp("sort") / "store",
        num_nodes,
        (source, target, given_weight),
        pieces=3,
        undirected=undirected,
        memory=MIN_MEMORY,
    )
    expected = oracle(num_nodes, source, target, given_weight)
    if undirected:
        back = oracle(num_nodes, target, source, given_weight)
        expected = {key: max(expected.get(key, 0), back.get(key, 0)) for key in expected | back}
    assert stored(store) == {(t, s): w for (t, s), w in expected.items() if t != s or w > 0}
    assert ("weight" in store) == weighted


@pytest.mark.parametrize("weighted", [False, True])
def test_neither_pieces_nor_order_nor_memory_change_a_byte(tmp_path: Path, weighted: bool) -> None:
    source, target, weight = random_edges(500, 20_000, hub=0.3)
    edges = (source, target, weight if weighted else None)
    whole = contents(write_edges(tmp_path / "a", 500, edges))
    order = np.random.default_rng(1).permutation(len(source))
    shuffled = tuple(None if values is None else values[order] for values in edges)
    parts = write_edges(tmp_path / "b", 500, shuffled, pieces=77, memory=MIN_MEMORY)  # type: ignore[arg-type]
    assert contents(parts) == whole
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("hub", "weighted"), [(0.0, False), (1.0, True)])
def test_edges_and_features_need_no_more_than_the_given_memory(
    tmp_path: Path, hub: float, weighted: bool
) -> None:
    source, target, weight = random_edges(50_000, 400_000, hub=hub)
    x = np.ones((50_000, 40), dtype=np.float32)
    budget, per_node = 2**20, 50_000 * 40
    tracemalloc.start()
    try:
        with GraphStoreWriter(tmp_path / "store", 50_000, memory=budget) as writer:
            writer.add_edges(source, target, weight if weighted else None)
            writer.add_features(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < budget + per_node < source.nbytes


def test_node_numbers_near_the_limit_of_32_bits_are_kept(tmp_path: Path) -> None:
    num_nodes = sorting.MAX_NODES
    source, target = np.array([num_nodes - 1, 0, 2**31]), np.array([0, num_nodes - 1, 2**31 + 5])
    sort = sorting.EdgeSort(tmp_path, num_nodes, MIN_MEMORY)
    for s, t in zip(source, target, strict=True):
        sort.add(np.array([s]), np.array([t]), None)
    parts = list(sort.parts())
    assert np.concatenate([part[0] for part in parts]).tolist() == sorted(target.tolist())
    assert np.concatenate([part[1] for part in parts]).tolist() == [num_nodes - 1, 2**31, 0]


@pytest.mark.parametrize("convert", [torch.from_numpy, np.asarray, lambda a: a.astype(np.int16)])
def test_edges_may_be_tensors_and_arrays_of_any_integers(tmp_path: Path, convert: Any) -> None:
    source, target, _ = random_edges(50, 200)
    store = write_edges(tmp_path / "store", 50, (convert(source), convert(target), None))
    assert stored(store) == oracle(50, source, target, None)


# Features and columns


def matrix(num_nodes: int = 40, width: int = 6) -> np.ndarray:
    random = np.random.default_rng(0)
    values = random.normal(size=(num_nodes, width)).astype(np.float32)
    return values * (random.random(values.shape) < 0.4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_dense_features_keep_float16_and_else_become_float32(tmp_path: Path, dtype: Any) -> None:
    x = (10 * matrix()).astype(dtype)
    with GraphStoreWriter(tmp_path / "store", len(x), memory=MIN_MEMORY) as writer:
        writer.add_features(x[:1])
        writer.add_features(torch.from_numpy(x[1:]))
    store = GraphStore(tmp_path / "store")
    expected = x if dtype == np.float16 else x.astype(np.float32)
    assert store.x.dtype == (torch.float16 if dtype == np.float16 else torch.float32)
    assert np.array_equal(store.x.numpy(), expected)
    assert store.load().x.dtype == torch.float32
    assert np.array_equal(np.load(tmp_path / "store" / "features.npy"), expected)


@pytest.mark.parametrize("kind", ["scipy", "torch"])
def test_sparse_features_stay_sparse(tmp_path: Path, kind: str) -> None:
    x = matrix()
    pieces = [sp.csr_matrix(part) for part in (x[:7], x[7:8], x[8:])]
    with GraphStoreWriter(tmp_path / "store", len(x)) as writer:
        for piece in pieces:
            as_torch = torch.from_numpy(piece.toarray()).to_sparse_csr()
            writer.add_features(piece if kind == "scipy" else as_torch)
    store = GraphStore(tmp_path / "store")
    for found in (store.x, store.load().x):
        assert found.layout == torch.sparse_csr
        assert np.array_equal(found.to_dense().numpy(), x)
    assert store.num_features == x.shape[1]


def test_maps_are_writable_and_changes_stay_in_memory(tmp_path: Path) -> None:
    x = matrix()
    with GraphStoreWriter(tmp_path / "store", len(x)) as writer:
        writer.add_features(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GraphStore(tmp_path / "store").x[0] = 7
    assert np.array_equal(GraphStore(tmp_path / "store").x.numpy(), x)


@pytest.mark.parametrize(
    ("y", "names", "classes", "loaded"),
    [
        ([3, -1, 7, 3], None, [3, 7], [3, -1, 7, 3]),
        (["b", None, "a", "b"], None, ["a", "b"], ["b", None, "a", "b"]),
        ([True, False, True, True], None, [False, True], [True, False, True, True]),
        ([2, -1, 0, 2], ["z", "y", "x"], ["z", "y", "x"], ["x", None, "z", "x"]),
    ],
)
def test_labels_are_loaded_as_they_were_given(
    tmp_path: Path, y: Any, names: Any, classes: Any, loaded: Any
) -> None:
    with GraphStoreWriter(tmp_path / "store", 4) as writer:
        writer.add_features(matrix(4))
        writer.set_labels(y, names)
    store = GraphStore(tmp_path / "store")
    assert store.classes == classes
    assert store.load().y.tolist() == loaded


def test_splits_may_be_names_or_sets_of_nodes(tmp_path: Path) -> None:
    names = ["test", "val", "", "train", "2024", "train"]
    sets = {
        "2024": [4],
        "validation": np.array([False, True, False, False, False, False]),
        "test": torch.tensor([0]),
        "train": [3, 5],
        "empty": [],
    }
    for number, split in enumerate((names, np.array(names), sets)):
        with GraphStoreWriter(tmp_path / str(number), 6) as writer:
            writer.add_features(matrix(6))
            writer.set_split(split)
        store = GraphStore(tmp_path / str(number))
        assert store.splits == ["train", "valid", "2024", "test"]
        assert store.nodes("train").tolist() == [3, 5]
        assert store.nodes("2024").tolist() == [4]
        data = store.load()
        assert data.val_mask.nonzero().flatten().tolist() == [1]
        assert data.test_mask.nonzero().flatten().tolist() == [0, 4]
        with pytest.raises(InputError, match="valid"):
            store.nodes("valit")


# Opening


@pytest.fixture
def written(tmp_path: Path) -> GraphStore:
    """A store with every kind of array except sparse features."""
    source, target, weight = random_edges(40, 300)
    with GraphStoreWriter(tmp_path / "store", 40) as writer:
        writer.add_edges(source, target, weight + 1)
        writer.add_features(matrix())
        writer.set_labels(np.arange(40) % 3)
        writer.set_split(np.repeat(["train", "valid", "test", ""], 10))
        writer.set_time(np.arange(40))
        writer.set_environment(np.array(["a", "b"])[np.arange(40) % 2])
        writer.set_sample_weight(np.linspace(0, 1, 40))
        writer.set_node_id([f"node {i}" for i in range(40)])
    return GraphStore(tmp_path / "store")


def test_every_array_is_a_plain_npy_file(written: GraphStore) -> None:
    names = [path.stem for path in written.path.glob("*.npy")]
    assert len(names) == 11
    for name in names:
        array = np.load(written.path / f"{name}.npy", allow_pickle=False)
        assert name in written
        assert array.dtype == written.array(name).dtype
        assert np.array_equal(array, written.array(name))
    assert "feature_rowptr" not in written


def test_a_pickled_store_is_its_path(written: GraphStore) -> None:
    again = pickle.loads(pickle.dumps(written))
    assert len(pickle.dumps(written)) < 500
    assert np.array_equal(again.array("features"), written.array("features"))


def test_a_flipped_bit_anywhere_is_found(written: GraphStore) -> None:
    for path in written.path.iterdir():
        raw = path.read_bytes()
        for position in (0, 60, len(raw) // 2, len(raw) - 1):
            path.write_bytes(raw[:position] + bytes([raw[position] ^ 4]) + raw[position + 1 :])
            if path.name == INDEX:
                with pytest.raises(CanetError, match=INDEX):
                    GraphStore(written.path)
            else:
                GraphStore(written.path)  # reads only the index
                (problem,) = written.problems()
                assert f"{path.name}'" in problem
                with pytest.raises(CanetError):
                    written.load()
            path.write_bytes(raw)
        assert written.problems() == []


def test_a_truncated_or_missing_file_is_an_error_on_opening(written: GraphStore) -> None:
    path = written.path / "neighbours.npy"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(ChecksumError, match=r"neighbours\.npy"):
        GraphStore(written.path)
    path.unlink()
    with pytest.raises(MissingFileError, match=r"neighbours\.npy"):
        GraphStore(written.path)
    assert len(written.problems()) == 1


def test_other_folders_and_versions_are_errors(written: GraphStore, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="nowhere"):
        GraphStore(tmp_path / "nowhere")
    index = written.path / INDEX
    index.write_bytes(pack_json({"format": FORMAT, "version": 99}))
    with pytest.raises(VersionError, match="version"):
        GraphStore(written.path)
    index.write_text("{}")
    with pytest.raises(InputError, match=INDEX):
        GraphStore(written.path)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("graph", {"edges": 1}),
        ("labels", {"labels": 1}),
        ("splits", {"split": 1}),
        ("features", {"features": 1}),
    ],
)
def test_the_digest_shows_which_part_of_two_stores_differs(
    tmp_path: Path, part: str, change: dict[str, int]
) -> None:
    def write(name: str, edges: int = 0, labels: int = 0, split: int = 0, features: int = 0) -> Any:
        with GraphStoreWriter(tmp_path / name, 4) as writer:
            writer.add_edges([0, 1, edges], [1, 2, 3])
            x = matrix(4)
            x[0, 0] += 1e-6 * features
            writer.add_features(x)
            writer.set_labels([0, 1, labels, 1])
            writer.set_split({"train": [split], "valid": [2]})
        return GraphStore(tmp_path / name).digest

    first = write("first")
    assert first.differs_in(write("same")) is None
    assert first.differs_in(write("other", **change)) == part


# Loading


def canonical(data: RawGraph) -> set[tuple[int, int, float]]:
    weight = torch.ones(data.edge_index.shape[1]) if "edge_weight" not in data else data.edge_weight
    return set(zip(*data.edge_index.tolist(), weight.tolist(), strict=True))


def test_a_loaded_store_is_a_graph_that_fit_accepts(written: GraphStore) -> None:
    data = written.load()
    source, target, weight = random_edges(40, 300)
    expected = oracle(40, source, target, weight + 1)
    assert canonical(data) == {(s, t, w) for (t, s), w in expected.items()}
    checked = check_graph(data)
    assert torch.equal(checked.edge_index, data.edge_index)  # there are no duplicates
    assert data.node_id[3] == "node 3"
    assert data.environment.tolist() == ["a", "b"] * 20
    assert data.time.tolist() == list(range(40))
    assert data.y.tolist() == (np.arange(40) % 3).tolist()


def test_a_store_that_does_not_fit_into_memory_names_the_alternative(
    written: GraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    with pytest.raises(InputError, match="batch_size and fanout"):
        written.load()


def test_an_encoding_is_kept(tmp_path: Path) -> None:
    data = read_columns(write_folder(tmp_path / "tables"), ReadOptions(Roles(**ROLES)))
    with GraphStoreWriter(tmp_path / "store", 4) as writer:
        writer.add_features(data.x)
        writer.set_encoding(data.encoding)
    assert GraphStore(tmp_path / "store").encoding == data.encoding
    assert GraphStore(tmp_path / "store").load().encoding == data.encoding


# Failures


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A block in which no file can have more than `size` bytes, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("limit", [0, 100, 2000, 8000])
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, limit: int) -> None:
    edges = random_edges(300, 5000)
    with pytest.raises(WriteError, match="store") as caught, largest_file(limit):
        write_edges(tmp_path / "store", 300, edges, memory=MIN_MEMORY)
    assert caught.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_block_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def write() -> None:
        with GraphStoreWriter(tmp_path / "store", 40) as writer:
            writer.add_features(matrix())
            assert not (tmp_path / "store").exists()
            raise error

    with pytest.raises(error):
        write()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_writer_is_removed_after_a_day(tmp_path: Path) -> None:
    old, young = (tmp_path / f".{name}.0123{TEMPORARY_SUFFIX}" for name in ("old", "young"))
    for folder in (old, young):
        folder.mkdir()
        (folder / "rowptr.npy").touch()
    for path in (old, old / "rowptr.npy", young):
        os.utime(path, (0, 0))
    write_edges(tmp_path / "store", 3, (np.array([0]), np.array([1]), None))
    assert not old.exists()
    assert young.exists()  # a file in it was written today


def test_an_existing_path_is_an_error_before_anything_is_written(written: GraphStore) -> None:
    before = contents(written)
    with pytest.raises(InputError, match="already exists"):
        GraphStoreWriter(written.path, 3)
    assert contents(written) == before


@pytest.mark.parametrize(
    ("pieces", "match"),
    [
        ([np.zeros((3, 2))], "3 rows"),
        ([np.zeros((5, 2))], "5 rows"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], "3 columns"),
        ([np.zeros((2, 2)), np.zeros((2, 2), dtype=np.float16)], "float16"),
        ([np.zeros((2, 2)), sp.csr_matrix((2, 2))], "sparse"),
        ([np.full((4, 2), np.nan)], "NaN"),
        ([np.full((4, 2), np.inf, dtype=np.float16)], "infinity"),
        ([np.zeros(4)], "shape"),
        ([np.array([["a", "b"]] * 4)], "text"),
    ],
)
def test_wrong_features_are_errors(tmp_path: Path, pieces: Any, match: str) -> None:
    def write() -> None:
        with GraphStoreWriter(tmp_path / "store", 4) as writer:
            for piece in pieces:
                writer.add_features(piece)

    with pytest.raises(InputError, match=match):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("method", "arguments", "match"),
    [
        ("add_edges", ([0], [4]), "node 4"),
        ("add_edges", ([-1], [0]), "node -1"),
        ("add_edges", ([0, 1], [1]), "2, 1"),
        ("add_edges", ([0, 1], [1, 2], [1.0]), "2, 2, 1"),
        ("add_edges", ([0], [1], [-1.0]), "≥ 0"),
        ("add_edges", ([0], [1], [np.nan]), "≥ 0"),
        ("add_edges", ([0.5], [1]), "source"),
        ("add_edges", ([0], [[1]]), "target"),
        ("set_labels", ([0, 1],), "y"),
        ("set_labels", ([0.5, 1, 2, 3],), "y"),
        ("set_labels", ([0, 1, 2, 0], ["a", "b"]), "classes"),
        ("set_labels", (["0", "1", "0", "1"], ["a", "b"]), "classes"),
        ("set_split", (["train"],), "split"),
        ("set_split", ([0, 1, 1, 0],), "split"),
        ("set_split", ({"train": [0, 1], "valid": [1]},), "overlap"),
        ("set_split", ({"train": [7]},), "train"),
        ("set_time", ([0, 1, 2, np.nan],), "time"),
        ("set_environment", ([1, 2],), "environment"),
        ("set_sample_weight", ([1, 2],), "sample_weight"),
        ("set_sample_weight", ([1, 2, 3, -1],), "sample_weight"),
        ("set_node_id", (["a", "b"],), "node_id"),
        ("set_node_id", (["a", "b", "c", "a"],), "node_id"),
    ],
)
def test_wrong_arguments_of_the_writer_are_errors(
    tmp_path: Path, method: str, arguments: Any, match: str
) -> None:
    with (
        pytest.raises(InputError, match=match),
        GraphStoreWriter(tmp_path / "store", 4) as writer,
    ):
        getattr(writer, method)(*arguments)


def test_weights_of_some_edges_only_are_an_error(tmp_path: Path) -> None:
    with GraphStoreWriter(tmp_path / "store", 4) as writer:
        writer.add_edges([0], [1], [1.0])
        with pytest.raises(InputError, match="weights"):
            writer.add_edges([0], [2])


@pytest.mark.parametrize("options", [{"num_nodes": 0}, {"num_nodes": 2**33}, {"memory": 1}])
def test_absurd_sizes_are_errors(tmp_path: Path, options: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        GraphStoreWriter(tmp_path / "store", **({"num_nodes": 4} | options))


def test_a_store_without_features_has_none(tmp_path: Path) -> None:
    store = write_edges(tmp_path / "store", 3, (np.array([0]), np.array([1]), None))
    assert store.num_features == 0
    with pytest.raises(InputError, match="features"):
        store.load()


def test_a_writer_outside_of_its_block_is_rejected(tmp_path: Path) -> None:
    writer = GraphStoreWriter(tmp_path / "store", 3)
    for use in (lambda: writer.add_edges([0], [1]), lambda: writer.set_labels([0, 1, 0])):
        with pytest.raises(InputError, match="with GraphStoreWriter"):
            use()
    with writer:
        writer.add_edges([0], [1])
    with pytest.raises(InputError, match="with GraphStoreWriter"):
        writer.add_edges([0], [1])


def test_a_store_is_read_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        "canet.data.graph_store.store.check_array",
        lambda index, folder, name: read.append(f"{name}.npy") or check_array(index, folder, name),
    )
    store = write_store(tmp_path / "store")
    store.open()
    assert len(read) == len(set(read)) == len(list(store.path.glob("*.npy")))
    read.clear()
    GraphStore(store.path).load()
    assert read == []
    (store.path / "labels.npy").touch()
    GraphStore(store.path).open()
    assert "labels.npy" in read

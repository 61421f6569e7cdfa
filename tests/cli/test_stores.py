"""The commands on graph stores."""

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from canet import GraphStore, load
from canet.reading import pieces
from tests.support.commands import QUICK, Canet, call
from tests.support.stores import NUM_NODES, never_load, write_store
from tests.support.user_tables import write_folder

BATCHES = ("--set", "batch_size=16", "--set", "fanout=4,4", "--set", "hidden=8")
SAGE = ("--method", "erm", "--backbone", "sage", *BATCHES, *QUICK)


@pytest.fixture
def store(work: Path, monkeypatch: pytest.MonkeyPatch) -> GraphStore:
    monkeypatch.setattr(pieces, "EDGES_AT_ONCE", {"cpu": 100, "cuda": 100})
    return write_store(work / "Users", node_id=True)


@pytest.fixture
def model(store: GraphStore, canet: Canet) -> Path:
    canet("fit", "Users", *SAGE, "--out", "model", "--json").content  # noqa: B018
    return store.path.parent / "model"


def test_train_and_evaluate_a_store_without_loading_it(
    store: GraphStore, canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_load(monkeypatch)
    train = ("train", "Users", *SAGE, "--seeds", 2, "--out", "runs", "--json")
    found = canet(*train).content
    assert found["task"] == "./Users"
    assert set(found["scores"]["test_ood"]) == {"test", "far"}
    (folder,) = (store.path.parent / "runs").iterdir()
    assert folder.name.startswith("Users-erm-sage-")
    assert (
        canet("evaluate", "runs", "--device", "cpu", "--json").content["scores"] == found["scores"]
    )
    again = canet(*train).content
    assert again["scores"] == found["scores"]
    text = canet("train", "Users", *SAGE, "--seeds", 2, "--out", "runs")
    assert "already finished" in text.out


@pytest.mark.slow
def test_jobs_train_on_a_store(store: GraphStore, canet: Canet) -> None:
    found = canet("train", "./Users", *SAGE, "--seeds", 2, "--jobs", 2, "--out", "runs", "--json")
    assert found.content["seeds"] == [0, 1]


def test_a_changed_store_is_noticed(store: GraphStore, canet: Canet) -> None:
    canet("train", "Users", *SAGE, "--out", "runs")
    store.path.rename(store.path.with_name("old"))
    assert "does not exist" in canet("evaluate", "runs", "--device", "cpu").complaint
    write_store(store.path, kind="half", node_id=True)
    assert "other features" in canet("evaluate", "runs", "--device", "cpu").complaint


@pytest.mark.parametrize("option", ["--inductive", "--protocol=disjoint", "--features=structural"])
def test_options_of_tasks_are_rejected_for_a_store(
    store: GraphStore, canet: Canet, option: str
) -> None:
    assert "graph store" in canet("train", "Users", *QUICK, option).complaint


def test_a_folder_of_tables_is_not_trained(work: Path, canet: Canet) -> None:
    write_folder(work / "tables")
    for place in ("tables", work / "missing"):
        complaint = canet("train", place, *QUICK).complaint
        assert "canet fit" in complaint
        assert "canet convert" in complaint


def test_a_task_has_precedence_over_a_folder(work: Path, canet: Canet) -> None:
    (work / "synthetic").mkdir()
    assert canet("train", "synthetic", *QUICK, "--json").content["task"] == "synthetic"


def test_fit_and_predict_a_store_without_loading_it(
    store: GraphStore, canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = store.load()
    never_load(monkeypatch)
    canet("fit", "Users", *SAGE, "--out", "model", "--json").content  # noqa: B018
    found = canet("predict", "model", "Users", "--out", "found.csv", "--json").content
    saved = load(store.path.parent / "model")
    with (store.path.parent / "found.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == graph.node_id.tolist()
    probabilities = np.array([[row[f"probability_{c}"] for c in saved.classes_] for row in rows])
    assert probabilities.astype(float) == pytest.approx(saved.predict_proba(graph), abs=1e-5)
    novelty = [float(row["novelty_score"]) for row in rows]
    assert np.mean(novelty) == pytest.approx(found["novelty_score"])
    confidence = probabilities.astype(float).max(axis=1).mean()
    assert found["mean_confidence"] == pytest.approx(confidence)
    predicted = [row["prediction"] for row in rows]
    assert found["predictions"] == {c: predicted.count(c) for c in set(predicted)}
    assert found["nodes"] == NUM_NODES
    assert found["score"] == pytest.approx(saved.score(store))
    assert found["labelled"] == sum(label is not None for label in graph.y)
    assert "nodes predicted" in canet("predict", "model", "Users", "--out", "again.csv").out


def test_some_nodes_of_a_store_are_predicted(store: GraphStore, model: Path, canet: Canet) -> None:
    (model.parent / "ids.txt").write_text("node 40\nnode 3\n")
    found = canet(
        "predict", "model", "Users", "--nodes", "ids.txt", "--out", "some.parquet", "--json"
    ).content
    assert found["nodes"] == 2
    assert pq.read_table(model.parent / "some.parquet")["id"].to_pylist() == ["node 3", "node 40"]
    split = canet("predict", "model", "Users", "--nodes", "split=val", "--out", "v.csv", "--json")
    assert split.content["nodes"] == len(store.nodes("valid"))
    wrong = canet("predict", "model", "Users", "--nodes", "split=nothing", "--out", "w.csv")
    assert "nothing" in wrong.complaint


@pytest.mark.parametrize("metric", ["roc_auc", "macro_f1"])
def test_scores_of_two_classes_are_those_in_memory(work: Path, canet: Canet, metric: str) -> None:
    store = write_store(work / "two", num_classes=2)
    canet("fit", "two", *SAGE, "--metric", metric, "--out", "model", "--json").content  # noqa: B018
    arguments = ("--out", "p.csv", "--recall-at", 20, "--device", "cpu", "--json")
    found = canet("predict", "model", "two", *arguments).content
    saved: Any = load(work / "model")
    assert found["score"] == pytest.approx(saved.score(store.load()))
    assert found["recall_at_k"]["recall"] == pytest.approx(saved.recall_at_k(store.load(), 20))
    best = canet("predict", "model", "two", *arguments, "--threshold", "best").content
    labels = saved.predict(store, threshold="best")
    assert best["predictions"] == {c: int((labels == c).sum()) for c in np.unique(labels)}


def test_a_store_is_diagnosed(model: Path, canet: Canet) -> None:
    found = canet("diagnose", "model", "Users", "--repeats", 1, "--nodes", "split=far", "--json")
    assert found.code == 0
    assert found.out


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_columns_of_a_store_cannot_be_chosen_again(model: Path, canet: Canet, command: str) -> None:
    first = ("model", "Users") if command == "predict" else ("Users",)
    answer = canet(command, *first, "--label", "kind", "--out", "new.csv")
    assert "canet convert" in answer.complaint


def flip_bit(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)


def test_a_store_that_changed_on_disk_is_rejected_by_every_command(
    store: GraphStore, model: Path, canet: Canet
) -> None:
    train = ("train", "Users", *SAGE, "--out", "runs")
    assert canet(*train, "--seeds", 1).code == 0
    flip_bit(store.path / "features.npy")
    for arguments in (
        (*train, "--seeds", 2),
        ("evaluate", "runs", "--device", "cpu"),
        ("fit", "Users", *SAGE, "--out", "new"),
        ("predict", "model", "Users", "--out", "p.csv"),
        ("diagnose", "model", "Users"),
        ("compare", "Users", *QUICK, "--out", "compared"),
        ("search", "Users", "--method", "erm", "--trials", 1, "--out", "found"),
    ):
        assert "features.npy" in canet(*arguments).complaint
    assert len(list((store.path.parent / "runs").glob("*/seed-*/done"))) == 1


def test_runs_on_a_store_contain_no_absolute_path(store: GraphStore, canet: Canet) -> None:
    for place in ("Users", store.path):  # the same runs
        canet("train", place, *SAGE, "--out", "runs", "--json").content  # noqa: B018
    (folder,) = (store.path.parent / "runs").glob("*/seed-0")
    for path in folder.iterdir():
        assert str(store.path.parent).encode() not in path.read_bytes()
    (elsewhere := store.path.parent / "elsewhere").mkdir()
    evaluate = ("evaluate", "../runs", "--device", "cpu")
    assert "--data-root" in call(elsewhere, *evaluate).complaint
    assert call(elsewhere, *evaluate, "--data-root", "..").code == 0


def test_a_pipe_or_device_of_node_ids_is_rejected(model: Path, canet: Canet) -> None:
    os.mkfifo(model.parent / "pipe")
    for nodes in ("pipe", "/dev/zero"):
        answer = canet("predict", "model", "Users", "--nodes", nodes, "--out", "p.csv")
        assert nodes in answer.complaint


def test_a_private_file_of_predictions_stays_private(model: Path, canet: Canet) -> None:
    out = model.parent / "p.csv"
    out.touch(0o600)
    canet("predict", "model", "Users", "--out", "p.csv", "--json").content  # noqa: B018
    assert out.stat().st_mode & 0o777 == 0o600

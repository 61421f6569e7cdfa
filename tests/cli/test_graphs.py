"""Your graph on the command line: inspect, fit, predict, diagnose."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import canet
from canet.data.benchmarks.twitch import FOLDERS
from canet.data.graph_files import write_npz
from canet.estimator.progress import STAGES, FitDisplay
from canet.util.sparse import from_scipy, to_scipy
from tests.support.commands import call, call_in_new_process
from tests.support.user_graphs import small_user_graph
from tests.support.user_tables import write_users

QUICK = ("--method", "canet", "--epochs", 5, "--set", "hidden=8", "--device", "cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `january` and `february`, graphs, and `model`, fitted on the first."""
    folder = tmp_path_factory.mktemp("own")
    write_users(folder / "january", 90, 0)
    write_users(folder / "february", 70, 1)
    fit = ("fit", "january", "--label", "topic", "--time", "month", "--undirected", *QUICK)
    answer = call(folder, *fit, "--epochs", 60, "--out", "model", "--quiet")
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    return folder


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_fit_shows_scores_columns_and_what_to_do_next(place: Path, tmp_path: Path) -> None:
    command = ("fit", place / "january", "--label", "topic", "--undirected", *QUICK)
    answer = call(tmp_path, *command, "--out", "model")
    assert answer.code == 0
    words = ("city", "2 categories", "standardised", "canet predict model GRAPH")
    for text in (*words, "better than always answering 'green' ("):
        assert text in " ".join(answer.out.split())
    assert "already contains a model" in call(tmp_path, *command, "--out", "model").err
    content = call(tmp_path, *command, "--out", "model", "--overwrite", "--json").content
    assert content["classes"] == ["blue", "green", "red"]
    assert set(content["scores"]) == set(content["baselines"]) == {"train", "valid"}
    assert content["settings"]["hidden"] == 8


def test_fit_shows_one_bar_that_names_each_stage(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[FitDisplay, str]] = []
    stage = FitDisplay.stage
    monkeypatch.setattr(
        FitDisplay, "stage", lambda self, name: (shown.append((self, name)), stage(self, name))
    )
    command = ("fit", place / "january", "--label", "topic", "--undirected", *QUICK)
    assert call(tmp_path, *command, "--out", "model").code == 0
    assert list(dict.fromkeys(name for _, name in shown)) == list(STAGES)
    assert len({id(display) for display, _ in shown}) == 1


def test_a_split_of_train_and_test_only_holds_a_part_of_training_back(
    place: Path, tmp_path: Path
) -> None:
    rows = read_csv(place / "january" / "nodes.csv")
    head, *lines = (place / "january" / "nodes.csv").read_text().splitlines()
    splits = ["test" if number % 3 == 0 else "train" for number in range(len(rows))]
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "edges.csv").write_bytes((place / "january" / "edges.csv").read_bytes())
    table = [",".join(row) for row in zip([head, *lines], ["split", *splits], strict=True)]
    (tmp_path / "graph" / "nodes.csv").write_text("\n".join(table))
    command = ("fit", "graph", "--label", "topic", "--undirected", *QUICK, "--out", "model")
    content = call(tmp_path, *command, "--json").content
    assert set(content["scores"]) == {"train", "valid", "test"}
    kept = canet.load(tmp_path / "model").reference_
    labelled = sum(s == "train" and row["topic"] != "" for row, s in zip(rows, splits, strict=True))
    held = kept.valid_y.numel()
    assert held + int(kept.train_label_counts.sum()) == labelled
    assert 0.1 < held / labelled < 0.3


def test_predictions_of_another_month_have_a_row_a_node(place: Path, tmp_path: Path) -> None:
    command = ("predict", place / "model", place / "february", "--device", "cpu")
    content = call(tmp_path, *command, "--out", "p.csv", "--json").content
    rows = read_csv(tmp_path / "p.csv")
    assert [row["id"] for row in rows] == [f"u{i}" for i in range(70)]
    probabilities = [f"probability_{name}" for name in ("blue", "green", "red")]
    assert list(rows[0]) == ["id", "prediction", *probabilities, "novelty_score"]
    assert (content["nodes"], content["labelled"]) == (70, 56)
    given = read_csv(place / "february" / "nodes.csv")
    hits = [p["prediction"] == g["topic"] for p, g in zip(rows, given, strict=True) if g["topic"]]
    assert content["score"] == pytest.approx(np.mean(hits))
    assert content["score"] > 0.6
    greens = [row["topic"] == "green" for row in given if row["topic"]]
    assert content["baseline"] == pytest.approx(np.mean(greens))
    shown = " ".join(call(tmp_path, *command, "--out", "p.csv").out.split())
    assert f"56 labelled nodes: {100 * content['score']:.1f} %, better than always" in shown
    for row in rows:
        assert sum(float(row[name]) for name in probabilities) == pytest.approx(1)


def test_a_graph_without_labels_is_predicted_without_a_score(place: Path, tmp_path: Path) -> None:
    write_users(tmp_path / "march", 20, 2, label=False)
    command = ("predict", place / "model", "march", "--out", "p.csv", "--json")
    content = call(tmp_path, *command).content
    assert (content["score"], content["labelled"], content["nodes"]) == (None, 0, 20)


def test_parquet_predictions_hold_what_csv_holds(place: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in ("p.csv", "p.parquet"):
        call(tmp_path, "predict", place / "model", place / "february", "--out", name)
    table = parquet.read_table(tmp_path / "p.parquet").to_pylist()
    rows = read_csv(tmp_path / "p.csv")
    assert [{k: str(v) for k, v in row.items()} for row in table] == rows


@pytest.mark.slow
def test_a_graph_stored_one_way_is_a_warning_in_one_line(place: Path, tmp_path: Path) -> None:
    command = ("fit", place / "january", "--label", "topic", *QUICK, "--out", "model", "--quiet")
    answer = call_in_new_process(tmp_path, *command)
    assert (answer.code, answer.out) == (0, "")
    first, *others = answer.err.splitlines()
    assert first.startswith("canet: warning: ")
    assert "--undirected" in first
    assert not any("--undirected" in line for line in others)


def test_inspect_shows_what_was_read(place: Path) -> None:
    answer = call(place, "inspect", "january", "--label", "topic", "--time", "month")
    assert answer.code == 0
    for words in ("90 nodes", "270 edges", "topic", "Rome", "2026-01-01", "--undirected"):
        assert words in answer.out
    content = call(place, "inspect", "january", "--label", "topic", "--json").content
    assert content["nodes"] == 90


def test_diagnose_prints_text_a_page_and_json(place: Path, tmp_path: Path) -> None:
    command = ("diagnose", place / "model", place / "february", "--repeats", 2)
    answer = call(tmp_path, *command, "--training", place / "january", "-o", "page.html")
    assert answer.code == 0
    assert "age" in answer.out
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")
    content = call(tmp_path, *command, "--json").content
    assert content["reliance"]["graph"] == "new"
    assert "--training" in call(tmp_path, *command, "--held-out").complaint


def region_graph(task: canet.ShiftTask, regions: Sequence[int]) -> tuple[Data, torch.Tensor]:
    """Some regions of Twitch as a graph of its own, and the ids of its nodes in the task."""
    nodes = torch.isin(task.data.environment, torch.tensor(regions)).nonzero().squeeze(1)
    number = torch.full((task.num_nodes,), -1)
    number[nodes] = torch.arange(nodes.numel())
    inside = number[task.data.edge_index].min(dim=0).values >= 0
    data = Data(
        x=from_scipy(to_scipy(task.data.x)[nodes.numpy()]),
        edge_index=number[task.data.edge_index[:, inside]],
        y=task.data.y[nodes],
    )
    return data, nodes


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
@pytest.mark.slow
def test_twitch_from_files_scores_what_the_task_scores(
    backbone: str, data_root: Path, tmp_path: Path
) -> None:
    task = canet.load_task("twitch", data_root)
    names = list(FOLDERS)
    train, nodes = region_graph(task, range(3))
    for split, name in (("train", "train_mask"), ("valid", "val_mask"), ("test_id", "test_mask")):
        train[name] = torch.isin(nodes, task.splits()[split])
    write_npz(tmp_path / "train.npz", train)
    for i in range(3, 6):
        write_npz(tmp_path / f"{names[i]}.npz", region_graph(task, [i])[0])
    settings = canet.task_settings("twitch", "canet", backbone)
    chosen = ("loss", "tau", "dropout", "weight_decay")
    changes = [x for n in chosen for x in ("--set", f"{n}={getattr(settings, n)}")]
    common = ("--backbone", backbone, "--epochs", 4, "--device", "cpu", "--json")
    fit = ("fit", "train.npz", "--method", "canet", "--metric", "roc_auc", *changes, *common)
    fitted = call(tmp_path, *fit, "--out", "model").content
    trained = call(tmp_path, "train", "twitch", *common, "--data-root", data_root).content["scores"]
    for name in ("train", "valid"):
        assert fitted["scores"][name] == pytest.approx(trained[name]["mean"], abs=1e-9)
    assert fitted["scores"]["test"] == pytest.approx(trained["test_id"]["mean"], abs=1e-9)
    for name in names[3:]:
        command = ("predict", "model", f"{name}.npz", "--out", "p.csv", "--device", "cpu", "--json")
        score = call(tmp_path, *command).content["score"]
        assert score == pytest.approx(trained["test_ood"][name]["mean"], abs=1e-6)


@pytest.mark.parametrize("command", ["predict", "diagnose"])
def test_an_output_never_replaces_the_graph(place: Path, command: str) -> None:
    before = (place / "february" / "nodes.csv").read_bytes()
    answer = call(place, command, "model", "february", "--out", "february/nodes.csv")
    assert "nodes.csv" in answer.complaint
    assert (place / "february" / "nodes.csv").read_bytes() == before


def test_some_nodes_are_predicted_by_id_or_split(place: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("u7\nu3\n")
    (tmp_path / "ids.csv").write_text("name,id\nx,u7\ny,u3\n")
    command = ("predict", place / "model", place / "february", "--quiet", "--out")
    call(tmp_path, *command, "all.csv")
    rows = {row["id"]: row for row in read_csv(tmp_path / "all.csv")}
    for name in ("ids.txt", "ids.csv"):
        assert call(tmp_path, *command, "some.csv", "--nodes", name).code == 0
        found = read_csv(tmp_path / "some.csv")
        assert [row["id"] for row in found] == ["u7", "u3"]
        for row in found:
            assert row["prediction"] == rows[row["id"]]["prediction"]
    (tmp_path / "ids.txt").write_text("u7\nnobody\n")
    for wanted, problem in (
        ("ids.txt", "no node 'nobody'"),
        ("split=test", "no column of splits"),
        ("x", "'x'"),
    ):
        assert problem in call(tmp_path, *command, "some.csv", "--nodes", wanted).complaint


def test_conditions_of_a_pipeline_give_exit_code_3(place: Path) -> None:
    command = ("diagnose", "model", "february", "--repeats", 1)
    answer = call(place, *command, "--quiet", "--fail-if", "expected<1.1", "--fail-if", "novel>2")
    assert answer.code == 3
    assert answer.err.startswith("canet: expected is ")
    assert "below 1.1" in answer.err
    assert call(place, *command, "--quiet", "--fail-if", "expected<0.001").code == 0
    content = call(place, *command, "--json", "--fail-if", "shifted>999").content
    assert content["failures"] == []
    for condition in ("expected", "expects<1", "expected<x"):
        assert call(place, *command, "--quiet", "--fail-if", condition).complaint


def test_training_continues_on_the_command_line(place: Path, tmp_path: Path) -> None:
    command = ("fit", place / "february", "--warm-start", place / "model", "--epochs", 2)
    answer = call(tmp_path, *command, "--out", "later", "--json")
    assert answer.code == 0
    assert answer.content["method"] == "canet"
    assert answer.content["settings"]["hidden"] == 8
    assert call(tmp_path, *command, "--out", "other", "--method", "erm").code == 2


def test_names_may_have_capital_letters(place: Path, tmp_path: Path) -> None:
    command = ("fit", place / "january", "--label", "topic", "--undirected", "--out", "model")
    upper = ("--method", "ERM", "--backbone", "SAGE", "--epochs", 2, "--json")
    answer = call(tmp_path, *command, *upper)
    assert (answer.content["method"], answer.content["backbone"]) == ("erm", "sage")
    answer = call(tmp_path, *command, "--method", "GCN")
    assert "is a backbone" in answer.err


def test_scores_and_thresholds_are_those_of_the_file(place: Path, tmp_path: Path) -> None:
    graph = write_users(tmp_path / "two", 80, 3)
    text = (graph / "nodes.csv").read_text().replace(",green,", ",red,")
    (graph / "nodes.csv").write_text(text)
    fit = ("fit", graph, "--label", "topic", "--undirected", *QUICK, "--out", "model", "--quiet")
    assert call(tmp_path, *fit, "--balanced").code == 0
    calibrated = ("--calibrated",)
    for words in (("--threshold", "best"), ("--threshold", "0.3", *calibrated), calibrated):
        command = ("predict", "model", graph, "--out", "p.csv", "--json", *words)
        content = call(tmp_path, *command).content
        found, nodes = read_csv(tmp_path / "p.csv"), read_csv(graph / "nodes.csv")
        pairs = [(p, n) for p, n in zip(found, nodes, strict=True) if n["topic"]]
        right = [p["prediction"] == n["topic"] for p, n in pairs]
        assert content["score"] == pytest.approx(np.mean(right))
        if content["threshold"] is not None:
            rare = [p for p in found if p["prediction"] == "blue"]
            lowest = min(float(p["probability_blue"]) for p in rare) if rare else 1.0
            assert lowest >= content["threshold"] - 1e-9


def test_columns_of_arrays_are_left_out_by_number(tmp_path: Path) -> None:
    data = small_user_graph(90)
    write_npz(tmp_path / "may.npz", data)
    torch.save(Data(x=data.x, edge_index=data.edge_index), tmp_path / "june.pt")
    data.x[:, [1, 3]] = 9.0
    write_npz(tmp_path / "july.npz", data)
    command = ("fit", "may.npz", *QUICK, "--out", "model")
    assert call(tmp_path, *command, "--without", "1,3", "--quiet").code == 0
    assert canet.load(tmp_path / "model").left_out_ == [1, 3]
    for name in ("june.pt", "july.npz"):
        assert call(tmp_path, "predict", "model", name, "--out", f"{name}.csv").code == 0
    assert (tmp_path / "june.pt.csv").read_text() == (tmp_path / "july.npz.csv").read_text()
    shown = call(tmp_path, "inspect", "july.npz", "--without", "1,3")
    assert shown.code == 0
    assert "same value" not in shown.out
    answer = call(tmp_path, *command, "--overwrite", "--without", "5")
    assert "columns 0 to 4" in answer.complaint
    assert call(tmp_path, "convert", "may.npz", "--out", "store", "--without", "1").complaint
    assert not (tmp_path / "store").exists()

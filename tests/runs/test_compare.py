"""Compare and search on a user graph."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from canet.runs import compare as compare_runs
from canet.runs.compare import applicable_methods
from canet.runs.comparison_task import (
    comparison_task,
    nodes_to_test,
    read_comparison,
    read_task,
    write_task,
)
from tests.support.commands import call
from tests.support.user_graphs import rare_class_graph
from tests.support.user_tables import write_users


def test_a_task_file_gives_the_same_task(tmp_path: Path) -> None:
    data = rare_class_graph(200, share=0.3)
    data.time = np.arange(200)
    data.edge_weight = torch.rand(data.num_edges)
    data.environment = np.array(["north", "south", None])[np.arange(200) % 3]
    task = comparison_task(data, "roc_auc", undirected=True)
    write_task(tmp_path, task)
    again = read_task(tmp_path)
    assert again.digest == task.digest
    assert again.metric == "roc_auc"
    (test,) = task.test_ood.values()
    assert test.tolist() == list(range(160, 200))  # the latest fifth
    assert task.valid.min() > task.train.max()
    assert not set(test.tolist()) & {*task.train.tolist(), *task.valid.tolist()}


def test_a_given_test_set_is_kept() -> None:
    data = rare_class_graph(200, share=0.3)
    data.test_mask = np.arange(200) < 30
    task = comparison_task(data)
    assert task.test_id.tolist() == list(range(30))
    assert not task.test_ood


@pytest.mark.parametrize(
    ("columns", "is_shifted"),
    [
        ({}, False),
        ({"time": np.arange(200)}, True),
        ({"time": np.arange(200) % 7}, False),
        ({"environment": np.where(np.arange(200) < 160, "north", "south")}, True),
        ({"environment": np.where(np.arange(200) % 2, "north", "south")}, False),
    ],
)
def test_a_given_test_set_is_shifted_if_times_or_environments_say_so(
    columns: dict[str, np.ndarray], is_shifted: bool, tmp_path: Path
) -> None:
    data = rare_class_graph(200, share=0.3)
    data.test_mask = np.arange(200) >= 160
    for name, column in columns.items():
        setattr(data, name, column)
    task = comparison_task(data)
    assert bool(task.test_ood) == is_shifted
    assert nodes_to_test(task).tolist() == list(range(160, 200))
    write_task(tmp_path, task)
    assert read_task(tmp_path).digest == task.digest


def test_methods_are_those_that_the_graph_allows() -> None:
    data = rare_class_graph(200, share=0.3)
    found = applicable_methods(comparison_task(data))
    assert found[:2] == ["linear", "trees"]
    assert "eerm" in found
    assert not {"auto", "irm"} & {*found}
    data.environment = np.arange(200) % 2
    data.edge_weight = torch.rand(data.num_edges)
    found = applicable_methods(comparison_task(data))
    assert "irm" in found
    assert "eerm" not in found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write_users(folder / "graph", 90, 0)
    return folder


COMMAND = ("graph", "--label", "topic", "--undirected", "--epochs", 3, "--device", "cpu")


def test_statistics_of_columns_leave_the_test_nodes_out(tmp_path: Path) -> None:
    folder = write_users(tmp_path / "graph", 90, 0)
    before = read_comparison(folder, label="topic", undirected=True)
    header, *rows = (folder / "nodes.csv").read_text().splitlines()
    for row in before.test_id.tolist():
        name, _, _, topic, month = rows[row].split(",")
        rows[row] = f"{name},9999,Rome,{topic},{month}"
    (folder / "nodes.csv").write_text("\n".join([header, *rows]))
    after = read_comparison(folder, label="topic", undirected=True)
    assert after.data.x[after.train].equal(before.data.x[before.train])


def test_compare_prints_a_table_and_writes_a_report(place: Path) -> None:
    words = ("compare", *COMMAND, "--environment", "city", "--methods", "ERM,linear,canet")
    words += ("--backbones", "gcn,sage", "--seeds", "2")
    answer = call(place, *words, "--set", "hidden=8", "--set", "tau=2")
    assert answer.code == 0
    for name in ("erm-gcn", "erm-sage", "canet-gcn", "canet-sage", "linear", "report.html"):
        assert name in answer.out
    page = (place / "comparison" / "report.html").read_text()
    assert "CaNet" in page
    assert "Your graph" in page
    assert "under shift" not in page  # the test set is a random sample
    assert "OOD" not in page
    content = json.loads(call(place, *words, "--set", "hidden=8", "--set", "tau=2", "--json").out)
    means = [one["scores"]["test_id"]["mean"] for one in content]
    assert means == sorted(means, reverse=True)
    assert all(len(one["seeds"]) == 2 for one in content)
    again = call(place, "evaluate", "comparison", "--json").content
    assert len(again) == 5
    assert not any("differences" in one for one in again)


def test_compare_says_that_auto_is_left_out(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_runs, "applicable_methods", lambda task: ["linear"])
    words = (*COMMAND[:4], "--device", "cpu", "--seeds", 1, "--out", "default")
    assert "auto takes longer" in call(place, "compare", *words).out


def test_compare_rejects_unknown_names_before_it_trains(place: Path) -> None:
    for option, value, problem in (
        ("--methods", "ermm", "did you mean 'erm'"),
        ("--backbones", "gnn", "unknown backbone"),
        ("--set", "lr=1", "no"),
    ):
        answer = call(place, "compare", *COMMAND, option, value, "--out", "none")
        assert answer.code == 2
        assert problem in answer.err


def test_search_on_a_graph_finds_settings_for_fit(place: Path) -> None:
    words = ("search", *COMMAND, "--method", "erm", "--trials", 2, "--out", "found")
    content = json.loads(call(place, *words, "--json").out)
    assert content["metric"] == "accuracy"
    program, *fit = shlex.split(content["train"])
    assert (program, fit[:5]) == ("canet", ["fit", "graph", "--label", "topic", "--undirected"])
    answer = call(place, *fit, "--device", "cpu", "--json")
    assert json.loads(answer.out)["settings"]["hidden"] == content["settings"]["hidden"]

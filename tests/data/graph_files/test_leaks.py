"""A column that gives a class away is named, with its rule, by fit and inspect."""

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch_geometric.data import Data

import canet
from canet.data.benchmarks.catalog import DATASETS, load_task
from canet.data.graph_files.inspection import inspect_graph
from canet.data.graph_files.leaks import leak_notes
from canet.data.labels import Labels
from canet.data.task import ShiftTask
from canet.util.sparse import select_rows, to_matrix

LEAKS = {
    "chargeback_date": "filled",
    "closed": "not before 2020-03-01",
    "amount": "at least 12.5",
    "status": "'locked', 'sued'",
    "nearly": "at least 1",
}
"""Column → its rule; the last one is right for 98 % of the nodes of each class."""
BENCHMARKS = [name for name in DATASETS if name != "synthetic"]


def leaking_columns(yes: np.ndarray) -> dict[str, Any]:
    """Five columns that know which nodes are yes."""
    random, n = np.random.default_rng(0), len(yes)
    days, amount = random.integers(0, 60, n), random.exponential(size=n)
    days[yes.argmax()] = amount[yes.argmax()] = 0
    dates = np.datetime64("2020-03-01", "s") + 86_400 * np.where(yes, days, -1 - days)
    wrong = np.zeros(n, dtype=bool)
    for nodes in (np.flatnonzero(yes), np.flatnonzero(~yes)):
        wrong[random.permutation(nodes)[: int(0.02 * len(nodes))]] = True
    return {
        "chargeback_date": pa.array(dates, mask=~yes),
        "closed": dates,
        "amount": np.where(yes, 12.5 + amount, 12 - amount),
        "status": np.where(yes, random.choice(["locked", "sued"], n), random.choice([*"abcd"], n)),
        "nearly": (yes ^ wrong).astype(int),
    }


def tables(columns: dict[str, Any], label: list[str | None]) -> tuple[pa.Table, pa.Table]:
    """Nodes with columns and a label, and edges in a ring."""
    n = len(label)
    ends = {"source": np.arange(n), "target": np.roll(np.arange(n), 1)}
    return pa.table({**columns, "label": label}), pa.table(ends)


def named(messages: list[str]) -> dict[str, str]:
    """The rule about each column that is named as a leak."""
    found = [text for text in messages if "alone says" in text]
    return {text.split("'")[1]: text.split("it is ")[1].split(" there")[0] for text in found}


def warnings_of_fit(*graph: Any, **arguments: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        canet.NodeClassifier("linear", undirected=True, device="cpu").fit(*graph, **arguments)
    return [str(one.message) for one in caught if one.category is canet.InputWarning]


@pytest.mark.parametrize("share", [0.01, 0.3])
def test_five_leaks_are_named_with_their_rules(share: float) -> None:
    random = np.random.default_rng(1)
    yes = random.random(3_000) < share
    honest = {"age": random.normal(size=3_000) + yes, "city": random.choice([*"xyz"], 3_000)}
    graph = tables(honest | leaking_columns(yes), np.where(yes, "yes", "no").tolist())
    assert named(inspect_graph(*graph, label="label").warnings) == LEAKS
    assert named(warnings_of_fit(*graph, label="label")) == LEAKS


def test_labels_of_test_nodes_are_not_used() -> None:
    yes = np.arange(600) % 2 == 0
    noise = np.random.default_rng(0).normal(size=600)
    split = np.where(np.arange(600) < 300, "train", "test")
    nodes, edges = tables({"column": np.where(split == "test", yes, noise)}, yes.astype(str))
    nodes = nodes.append_column("split", pa.array(split))
    assert not named(inspect_graph(nodes, edges, label="label").warnings)
    assert not named(warnings_of_fit(nodes, edges, label="label"))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_column_of_an_array_that_marks_one_class_of_three_is_named(sparse: bool) -> None:
    random, y = np.random.default_rng(0), np.arange(300) % 3
    x = torch.from_numpy(random.random((300, 40)) * (random.random((300, 40)) < 0.2))
    x[:, 7] = torch.from_numpy(np.where(y == 1, 2 + random.random(300), 0))
    x[:, 9] = torch.from_numpy(np.choose(y, [3, 1, 2]) * 1.0)
    data = Data(x=x.to_sparse_csr() if sparse else x, edge_index=torch.tensor([[0], [1]]), y=y)
    rules = named(warnings_of_fit(data))
    assert rules.keys() == {"7", "9"}
    assert "at least 2.0" in rules["7"]


def test_rules_about_empty_cells_and_codes() -> None:
    random, yes = np.random.default_rng(0), np.arange(400) % 4 == 0
    columns = {
        "gone": [None if one else 3.0 for one in yes],
        "word": ["cash" if one else None for one in yes],
        "code": np.where(yes, 3, random.choice([1, 2, 4, 5], 400)),
    }
    rules = named(inspect_graph(*tables(columns, yes.astype(str)), label="label").warnings)
    assert rules == {"gone": "empty", "word": "filled", "code": "3"}


@pytest.mark.parametrize("seed", range(3))
def test_the_score_is_that_of_a_loop_over_thresholds(seed: int) -> None:
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat([0, 1, 2], [30, 50, 70]))
    x = (y == seed) + 0.15 * random.normal(size=150)
    labels = Labels(np.arange(3), y)
    (text,) = leak_notes(labels, np.arange(150), lambda rows: torch.from_numpy(x[rows, None]), 1)
    scores = [(np.mean(x[y == seed] >= bound) + np.mean(x[y != seed] < bound)) / 2 for bound in x]
    shown = int(text.split("balanced accuracy ")[1].split(" %")[0])
    assert max(scores) - 0.03 <= shown / 100 <= max(scores) + 0.005


def note_task(task: ShiftTask) -> list[str]:
    x, labels = task.data.x, Labels(np.arange(task.num_classes), task.y.numpy())
    return leak_notes(labels, task.train.numpy(), lambda rows: select_rows(x, rows), x.shape[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_no_column_of_a_benchmark_is_a_leak(name: str, data_root: object) -> None:
    for protocol in DATASETS[name].protocols:
        try:
            task = load_task(name, protocol=protocol)
        except canet.CanetError:  # without the features file
            task = load_task(name, protocol=protocol, features="structural")
        assert note_task(task) == []


@pytest.mark.slow
@pytest.mark.parametrize("share", [None, 0.01])
@pytest.mark.parametrize("name", ["fb100", "twitch", "election"])
def test_leaks_in_real_data_are_named(name: str, share: float | None, data_root: object) -> None:
    """With the share of one class that a data set has, or with fewer labels of this class."""
    task = load_task(name)
    y, rows = task.y.numpy(), to_matrix(task.data.x)[:, :50]
    yes, kept = y == 1, y >= 0
    if share is not None:
        kept &= ~yes | (np.random.default_rng(0).random(len(y)) < share * kept.sum() / yes.sum())
    dense = (rows if isinstance(rows, np.ndarray) else rows.toarray())[kept]
    columns = {f"x{i}": column for i, column in enumerate(dense.T)}
    label = np.where(yes[kept], "yes", "no").tolist()
    graph = tables(columns | leaking_columns(yes[kept]), label)
    assert named(inspect_graph(*graph, label="label").warnings).keys() == LEAKS.keys()
    assert named(warnings_of_fit(*graph, label="label")).keys() == LEAKS.keys()

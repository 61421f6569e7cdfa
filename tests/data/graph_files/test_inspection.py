import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from canet.data.graph_files import read_graph, write_npz
from canet.data.graph_files.inspection import Inspection, edge_statistics, inspect_graph
from canet.errors import InputError
from tests.support.user_tables import EDGES, NODES, ROLES, write_folder


def column(found: Inspection, name: str) -> tuple[str, str, int, str]:
    (report,) = [report for report in found.columns if report.name == name]
    return report.role, report.kind, report.empty, report.content


def test_a_folder_is_described(tmp_path: Path) -> None:
    found = inspect_graph(write_folder(tmp_path), **ROLES)
    assert (found.nodes, found.features, found.edges.edges) == (4, 4, 4)
    assert found.edges.self_loops == 1
    assert found.labels == {"bad": 1, "good": 2}
    assert found.unlabelled == 1
    assert found.environments == {"north": 2, "south": 2}
    assert found.splits == {"train": 2, "valid": 1, "test": 1}
    assert found.time == ("2024-01-01", "2024-01-04")
    assert column(found, "id") == ("id", "text", 0, "ann, bob, cat, dan")
    assert column(found, "kind") == ("label", "text", 1, "good, bad")
    assert column(found, "when") == ("time", "date", 0, "2024-01-01 to 2024-01-04")
    assert column(found, "age") == ("feature", "number", 0, "10 to 30")
    assert column(found, "colour") == ("feature", "text", 1, "blue, red")
    assert "'colour'" in found.notes[0]
    assert "2 categories" in found.notes[0]


def test_the_same_graph_as_arrays_has_the_same_counts(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph")
    write_npz(tmp_path / "graph.npz", read_graph(folder, **ROLES))
    a, b = inspect_graph(folder, **ROLES), inspect_graph(tmp_path / "graph.npz")
    for name in ("nodes", "features", "edges", "labels", "unlabelled", "environments", "splits"):
        assert getattr(a, name) == getattr(b, name), name
    assert column(b, "y") == ("label", "text", 1, "good, bad")
    assert column(b, "x")[:3] == ("feature", "float32, dense", 0)


def test_problems_of_tables_are_warnings(tmp_path: Path) -> None:
    nodes = NODES.replace("30", "inf").replace("bob,", "ann,").replace("train", "dev")
    nodes = nodes.replace("2024-01-04", "soon")
    found = inspect_graph(write_folder(tmp_path, nodes, EDGES + "ann,zoe\n"), **ROLES)
    text = "\n".join(found.warnings)
    for problem in (
        "'age' (1)",
        "such as 'ann'",
        "3 of 5 edges",
        "'dev' (row 1)",
        "'soon' (row 4)",
        "bad (1), good (2)",
    ):
        assert problem in text
    assert found.features is None
    assert found.edges.edges == 2
    assert found.nodes == 4


def test_edges_in_one_direction_give_a_warning(tmp_path: Path) -> None:
    one = EDGES + "ann,cat\nann,dan\nbob,dan\n" * 2
    found = inspect_graph(write_folder(tmp_path / "one", edges=one), **ROLES)
    assert any("--undirected" in line for line in found.warnings)
    both = EDGES + "bob,ann\ncat,bob\ndan,cat\n"
    found = inspect_graph(write_folder(tmp_path / "both", edges=both), **ROLES)
    assert found.edges.reverse_share == 1
    assert not any("--undirected" in line for line in found.warnings)


def test_problems_of_arrays_are_warnings(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "graph.npz",
        x=np.array([[1, np.nan], [2e6, 1], [3, np.inf]]),
        edge_index=np.array([[0, 1, 2], [1, 9, 0]]),
        y=np.array([[1, 0], [0, 1], [1, 0]]),
        train_mask=np.array([True]),
        time=np.array([1.0, np.nan, 3.0]),
    )
    found = inspect_graph(tmp_path / "graph.npz")
    assert (found.nodes, found.features, found.edges.edges) == (3, None, 2)
    text = "\n".join(found.warnings)
    for problem in (
        "edge_index",
        "NaN",
        "y has shape [3, 2]",
        "train_mask",
        "1 nodes have no time",
    ):
        assert problem in text
    assert found.time == ("1", "3")


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_csr])
def test_large_and_constant_columns_give_a_warning(tmp_path: Path, layout: torch.layout) -> None:
    x = torch.tensor([[1, 5, -2e5, 0], [2, 5, 0, 0], [3, 5, 0, 1]])
    x = x if layout == torch.strided else x.to_sparse_csr()
    torch.save(Data(x=x, edge_index=torch.tensor([[0], [1]])), tmp_path / "graph.pt")
    found = inspect_graph(tmp_path / "graph.pt")
    large, same = found.warnings[:2]
    assert large.endswith("columns: 2")
    assert same.endswith("columns: 1")
    assert column(found, "x")[3] == "-200000 to 5"


def test_a_graph_without_labels_or_features_can_be_inspected(tmp_path: Path) -> None:
    found = inspect_graph(write_folder(tmp_path, "id\na\nb\n", "source,target\n"))
    assert found.features is None
    assert found.unlabelled is None
    assert found.edges.components == 2
    assert any("no feature" in line for line in found.warnings)
    np.savez(tmp_path / "graph.npz", x=np.zeros((0, 3)), edge_index=np.zeros((2, 0)))
    with pytest.raises(InputError, match=r"graph.npz"):  # without nodes
        inspect_graph(tmp_path / "graph.npz")


def test_lines_and_tables_agree_with_the_json(tmp_path: Path) -> None:
    found = inspect_graph(write_folder(tmp_path), **ROLES)
    content = json.loads(json.dumps(found.to_json()))
    assert content["edges"]["self_loops"] == 1
    assert content["labels"] == found.labels
    assert content["columns"][0]["name"] == "id"
    lines = found.lines()
    assert lines[0] == f"{tmp_path}: 4 nodes, 4 edges, 4 features"
    assert "time: 2024-01-01 to 2024-01-04" in lines
    assert [title for title, _, _ in found.tables()] == ["Columns", "Labels", "Environments"]
    for _, heads, rows in found.tables():
        assert all(len(row) == len(heads) for row in rows)


def test_long_tables_are_shortened_in_the_terminal_but_not_in_the_json(tmp_path: Path) -> None:
    head = ",".join(f"c{i}" for i in range(30))
    rows = ["\n" + ",".join(str(i * j % 7) for i in range(30)) for j in range(3)]
    found = inspect_graph(
        write_folder(tmp_path, head + "".join(rows) + "\n", "source,target\n0,1\n")
    )
    title, _, shown = found.tables()[0]
    assert title == "Columns"
    assert shown[-1][0] == "… 10 more"
    assert len(found.to_json()["columns"]) == 30


def test_statistics_of_a_small_graph_are_correct() -> None:
    edges = np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 3, 3, 3]])
    found = edge_statistics(edges, 6)
    assert (found.edges, found.self_loops, found.repeated) == (6, 1, 1)
    assert found.reverse_share == pytest.approx(2 / 4)
    assert (found.components, found.largest_component, found.isolated) == (3, 4, 2)
    assert (found.degree_median, found.degree_max) == (1, 2)
    found = edge_statistics(np.empty((2, 0), dtype=np.int64), 3)
    assert found.reverse_share is None
    assert (found.components, found.isolated, found.degree_max) == (3, 3, 0)


def test_a_notebook_shows_the_report_as_tables(tmp_path: Path) -> None:
    nodes = NODES.replace("blue", "<b>\x1b[31m")
    page = inspect_graph(write_folder(tmp_path, nodes), **ROLES)._repr_html_()
    assert page.count("<table>") == 3
    assert page.count("<td") == page.count("</td>") > 20
    assert "&lt;b&gt;" in page
    assert "\x1b" not in page

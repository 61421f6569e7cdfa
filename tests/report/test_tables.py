import csv
from dataclasses import replace
from pathlib import Path

import pytest

from canet.report.score import Published, Score
from canet.report.tables import Table


def table(*rows: list[str | Score]) -> Table:
    return Table("name", "A title", ["backbone", "method", "cora OOD"], rows, ["A note."])


def lines(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("|")]


@pytest.mark.filterwarnings("error")
def test_the_best_is_bold_and_the_second_underlined_in_each_backbone() -> None:
    scores = table(
        ["GCN", "ERM", Score([0.7], 1)],
        ["GCN", "IRM", Score([0.6], 1)],
        ["GCN", "CaNet", Score([0.95], 1)],
        ["GAT", "ERM", Score([0.8], 1)],
        ["GAT", "CaNet", Score([], 1)],
    )
    page = scores.ranked().markdown()
    assert lines(page)[2:] == [
        "| GCN | ERM | <u>70.00</u> |",
        "| GCN | IRM | 60.00 |",
        "| GCN | CaNet | **95.00** |",
        "| GAT | ERM | **80.00** |",
        "| GAT | CaNet | – |",
    ]
    assert page.startswith("# A title\n\nA note.\n\n|")


def test_published_scores_have_their_own_column() -> None:
    with_paper = table(
        ["GCN", "ERM", Score([0.7], 1, Published("Table 1", 0.743, 0.0266))],
        ["GCN", "EERM", Score([0.6], 1, Published("Table 1", None, None))],
        ["GCN", "V-REx", Score([0.6], 1)],
    )
    heads, rows = with_paper.texts()
    assert heads == ["backbone", "method", "cora OOD", "paper"]
    assert [row[-1] for row in rows] == ["74.30 ± 2.66", "OOM", "–"]


def test_the_csv_has_a_line_for_every_score(tmp_path: Path) -> None:
    table(
        ["GCN", "ERM", Score([0.7, 0.72], 2, Published("Table 1", 0.743, 0.0266))],
        ["GCN", "EERM", Score([], 2, Published("Table 1", None, None))],
    ).write(tmp_path)
    with (tmp_path / "name.csv").open(newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "backbone": "GCN",
        "method": "ERM",
        "score": "cora OOD",
        "mean": "71.0000",
        "std": "1.4142",
        "runs": "2",
        "expected": "2",
        "values": "70.0000 72.0000",
        "published": "74.3",
        "published std": "2.66",
    }
    assert (second["mean"], second["runs"], second["published"]) == ("", "0", "OOM")
    assert {path.name for path in tmp_path.iterdir()} == {"name.md", "name.csv", "name.json"}
    assert (tmp_path / "name.md").read_text(encoding="utf-8").startswith("# A title")


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = table(
        ["GCN", "ERM", Score([0.701, 1 / 3], 2, Published("Table 1", 0.743, 0.0266), digits=3)],
        ["GCN", "EERM", Score([], 2, Published("Table 1", None, None))],
        ["GCN", "full", ""],
    ).ranked()
    written.write(tmp_path)
    assert Table.read(tmp_path / "name.json") == replace(written, rows=list(written.rows))


def test_a_wide_table_is_split_into_parts_that_keep_their_labels() -> None:
    scores = [Score([value], 1) for value in (0.01, 0.02, 0.03)]
    wide = Table("name", "Title", ["method", "a", "b", "c"], [["ERM", *scores]])
    assert len(wide.parts(3)) == 1
    assert [part.texts() for part in wide.parts(2)] == [
        (["method", "a", "b"], [["ERM", "1.00", "2.00"]]),
        (["method", "c"], [["ERM", "3.00"]]),
    ]

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from canet.paper.published import Published
from canet.report.tables import Score, Table


def table(*rows: list[str | Score], ranked: bool = True) -> Table:
    return Table("name", "A title", ["backbone", "method", "cora OOD"], rows, ["A note."], ranked)


def lines(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("|")]


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (Score([90.0, 92.0], 2), "91.00 ± 1.41"),
        (Score([90.0], 1), "90.00"),
        (Score([90.0, 92.0], 5), "91.00 ± 1.41 (2 of 5)"),
        (Score([], 5), "–"),
        (Score([math.nan, 90.0], 2), "–"),
        (Score([0.12345], 1, digits=3), "0.123"),
    ],
)
def test_a_score_reads_as_mean_and_spread(score: Score, text: str) -> None:
    assert score.text == text


@pytest.mark.filterwarnings("error")
def test_the_best_is_bold_and_the_second_underlined_in_each_backbone() -> None:
    page = table(
        ["GCN", "ERM", Score([70.0], 1)],
        ["GCN", "IRM", Score([60.0], 1)],
        ["GCN", "CaNet", Score([95.0], 1)],
        ["GAT", "ERM", Score([80.0], 1)],
        ["GAT", "CaNet", Score([], 1)],
    ).markdown()
    assert lines(page)[2:] == [
        "| GCN | ERM | <u>70.00</u> |",
        "| GCN | IRM | 60.00 |",
        "| GCN | CaNet | **95.00** |",
        "| GAT | ERM | **80.00** |",
        "| GAT | CaNet | – |",
    ]
    assert page.startswith("# A title\n\nA note.\n\n|")


def test_published_numbers_stand_in_a_column_of_their_own() -> None:
    with_paper = table(
        ["GCN", "ERM", Score([70.0], 1, Published("Table 1", 74.3, 2.66))],
        ["GCN", "EERM", Score([60.0], 1, Published("Table 1", None, None))],
        ["GCN", "V-REx", Score([60.0], 1)],
        ranked=False,
    )
    heads, rows = with_paper.texts()
    assert heads == ["backbone", "method", "cora OOD", "paper"]
    assert [row[-1] for row in rows] == ["74.30 ± 2.66", "OOM", "–"]


def test_columns_without_published_numbers_have_none_beside_them() -> None:
    heads, _ = table(["GCN", "ERM", Score([70.0], 1)]).texts()
    assert heads == ["backbone", "method", "cora OOD"]


def test_the_csv_has_a_line_for_every_score(tmp_path: Path) -> None:
    table(
        ["GCN", "ERM", Score([70.0, 72.0], 2, Published("Table 1", 74.3, 2.66))],
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
    assert (tmp_path / "name.md").read_text(encoding="utf-8").startswith("# A title")


def test_a_text_among_scores_has_no_line_in_the_csv() -> None:
    content = table(["GCN", "full", ""], ["GCN", "other", Score([70.0], 1)]).csv()
    assert [line.split(",")[1] for line in content.splitlines()] == ["method", "other"]


def test_a_wide_table_is_cut_into_parts_that_keep_their_texts() -> None:
    scores = [Score([value], 1) for value in (1.0, 2.0, 3.0)]
    wide = Table("name", "Title", ["method", "a", "b", "c"], [["ERM", *scores]])
    assert len(wide.parts(3)) == 1
    assert [part.texts() for part in wide.parts(2)] == [
        (["method", "a", "b"], [["ERM", "1.00", "2.00"]]),
        (["method", "c"], [["ERM", "3.00"]]),
    ]


def test_a_published_number_stays_with_ours_where_a_table_is_cut() -> None:
    scores = [Score([1.0], 1, Published("Table 1", 2.0, 0.5)), Score([3.0], 1)]
    wide = Table("name", "Title", ["method", "a", "b"], [["ERM", *scores]])
    assert [part.texts()[0] for part in wide.parts(2)] == [
        ["method", "a", "paper"],
        ["method", "b"],
    ]


def test_a_table_of_texts_is_its_own_csv() -> None:
    texts = Table("lead", "Lead", ["backbone", "rank"], [["GCN", "1 of 9"]])
    assert texts.csv() == "backbone,rank\nGCN,1 of 9\n"

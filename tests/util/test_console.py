"""Tables on standard output."""

from __future__ import annotations

from typing import Any

import pytest

from canet.util.console import print_table, summary_rows
from tests.support.terminal import terminal


def test_a_table_prints_markup_literally_and_aligns_numbers_to_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    title = "[bold] A title that is longer than the table"
    rows = [("[red]x", "9.50 ± 0.10"), (":smile:", "10.25 ± 0.00")]
    print_table(title, ["name", "score"], rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == title
    assert "│ [red]x  │  9.50 ± 0.10 │" in lines
    assert "│ :smile: │ 10.25 ± 0.00 │" in lines


def test_a_table_fits_the_terminal_without_cutting_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = "/a/long/folder" * 9
    with terminal() as screen:
        print_table("Files", ["file", "place"], [("name", path)])
    assert all(len(line) <= 80 for line in screen.lines())
    cells = [line.split("│")[2].strip() for line in screen.lines() if line.startswith("│")]
    assert "".join(cells) == path
    print_table("Files", ["file", "place"], [("name", path)])
    assert path in capsys.readouterr().out  # without a terminal, lines are wider


def test_rows_of_a_summary_follow_the_protocol() -> None:
    def spread(mean: float) -> dict[str, Any]:
        return {"mean": mean, "std": 0.01, "values": [mean - 0.01, mean, mean + 0.01]}

    scores = {
        "train": spread(0.99),
        "valid": spread(0.88),
        "test_id": spread(0.77),
        "test_ood": {"near": spread(0.66), "far": spread(0.55)},
        "test_ood_mean": spread(0.605),
    }
    rows = summary_rows({"scores": scores})
    names = ("train", "valid", "test_id", "test_ood near", "test_ood far", "test_ood mean")
    assert [name for name, _ in rows] == [*names]
    assert rows[-1][1] == "60.50 ± 1.00"
    of_one_run = {"mean": 0.605, "std": 0.0, "values": [0.605]}
    single = summary_rows({"scores": scores | {"test_ood_mean": of_one_run}})
    assert single[-1] == ("test_ood mean", "60.50")
    with_more = summary_rows({"scores": scores | {"left_out": {"gap": spread(0.01)}}})
    assert with_more == [*rows, ("left out gap", "1.00 ± 1.00")]

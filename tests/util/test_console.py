"""Tables on standard output."""

import pytest

from canet.util.console import print_table
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

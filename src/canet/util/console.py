"""Short tables on standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table

from canet.errors import plain

WIDTH_OF_FILES = 160


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output."""
    screen = console()
    screen.print(plain(title), style="bold", highlight=False, soft_wrap=True)
    screen.print(make_table(columns, rows))


def say(text: object) -> None:
    """Text of a user's data on standard output."""
    print(plain(text))


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table whose columns of numbers are flush right, and whose first column never wraps."""
    table = Table()
    for i, column in enumerate(columns):
        numbers = all(row[i][:1].isdigit() for row in rows)
        justify: JustifyMethod = "right" if numbers else "left"
        table.add_column(plain(column), justify=justify, no_wrap=i == 0, overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def console() -> Console:
    """Standard output, with texts as they are: a folder may be called `[bold]`."""
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    return Console(width=width, markup=False, emoji=False)


def spread_text(spread: dict[str, Any]) -> str:
    """`{"mean": 96.391, "std": 0.432, "values": […]}` → `96.39 ± 0.43`; no spread of one run."""
    several = f" ± {spread['std']:.2f}" if len(spread["values"]) > 1 else ""
    return f"{spread['mean']:.2f}{several}"


def summary_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The scores of a summary, a line each."""
    scores = summary["scores"]
    rows = [(name, spread_text(scores[name])) for name in ("train", "valid", "test_id")]
    rows += [(f"test_ood {name}", spread_text(s)) for name, s in scores["test_ood"].items()]
    rows.append(("test_ood mean", spread_text(scores["test_ood_mean"])))
    left_out = scores.get("left_out", {})
    return rows + [(f"left out {name}", spread_text(s)) for name, s in left_out.items()]

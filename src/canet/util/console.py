"""Text and tables on standard output."""

import sys
from collections.abc import Sequence

from rich.console import Console, JustifyMethod
from rich.table import Table

from canet.errors import printable

FILE_WIDTH = 160  # characters per line if standard output is not a terminal


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    screen = console()
    screen.print(printable(title), style="bold", highlight=False, soft_wrap=True)
    screen.print(make_table(columns, rows))


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    screen = console()
    with screen.capture() as captured:
        screen.print(make_table(columns, rows))
    return captured.get()


def print_text(text: object) -> None:
    print(printable(text, keep_lines=True))


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table; columns of numbers are right-aligned and the first column never wraps."""
    table = Table()
    for i, column in enumerate(columns):
        numbers = all(row[i][:1].isdigit() for row in rows)
        justify: JustifyMethod = "right" if numbers else "left"
        table.add_column(printable(column), justify=justify, no_wrap=i == 0, overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    return table


def console() -> Console:
    """Return a console for standard output that prints markup such as `[bold]` literally."""
    width = None if sys.stdout.isatty() else FILE_WIDTH
    return Console(width=width, markup=False, emoji=False)

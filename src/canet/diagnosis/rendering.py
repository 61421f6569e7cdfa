"""A diagnosis as text for a terminal, and as a self-contained HTML page without scripts."""

from __future__ import annotations

from collections.abc import Sequence

from canet.util.console import console, make_table
from canet.util.rendering import environment

FOLDERS = [
    ("canet.diagnosis", "templates"),
    ("canet.diagnosis", "sections"),
    ("canet.report", "templates"),
]


def render(template: str, **values: object) -> str:
    """Fill a template, of a page with the style sheet of the report or of a text for a terminal."""
    templates = environment(*FOLDERS, html=".html" in template)
    templates.globals |= {"table": table, "methods": {}, "controls": {}} | values
    return templates.get_template(template).render()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    screen = console()
    with screen.capture() as captured:
        screen.print(make_table(columns, rows))
    return captured.get()

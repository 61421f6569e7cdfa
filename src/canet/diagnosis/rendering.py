"""A diagnosis as text for a terminal, and as a self-contained HTML page without scripts."""

from __future__ import annotations

from canet.util.console import table_text
from canet.util.rendering import environment

FOLDERS = [
    ("canet.diagnosis", "templates"),
    ("canet.diagnosis", "sections"),
    ("canet.report", "templates"),
]


def render(template: str, **values: object) -> str:
    """Fill a template, of a page with the style sheet of the report or of a text for a terminal."""
    templates = environment(*FOLDERS, html=".html" in template)
    templates.globals |= {"table": table_text, "methods": {}, "controls": {}} | values
    return templates.get_template(template).render()

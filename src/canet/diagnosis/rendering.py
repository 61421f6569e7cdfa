"""A diagnosis as text for a terminal, and as a self-contained HTML page without scripts."""

from pathlib import Path

from canet.util.console import table_text
from canet.util.rendering import environment

HERE = Path(__file__).parent


def render(template: str, **values: object) -> str:
    """Fill a template, of a page or of a text for a terminal."""
    templates = environment(HERE / "templates", HERE / "sections", html=".html" in template)
    templates.globals |= {"table": table_text} | values
    return templates.get_template(template).render()

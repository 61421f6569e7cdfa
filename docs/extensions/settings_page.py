"""Write the tables of docs/reference/settings.md from the settings that the methods declare.

`make docs` runs this module. A test compares the page with the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from canet.methods import Settings
from canet.models import MethodClass, all_methods
from canet.settings import MAX_NUMBER, describe_settings

PAGE = Path(__file__).parents[1] / "reference" / "settings.md"
START, END = "<!-- settings -->\n", "<!-- end settings -->"
HEADER = "| setting | default | values | search range | meaning |\n|---|---|---|---|---|\n"
NO_LIMIT = f" and ≤ {MAX_NUMBER:,}"
"""The upper limit of most numbers, which only finds typing errors."""


def tables() -> str:
    """Markdown tables of the settings of all methods, then of each method."""
    common = describe_settings(Settings)
    parts = ["## All methods\n\n" + table(common)]
    parts += [section(method, common) for method in all_methods().values()]
    return "\n".join(parts)


def section(method: MethodClass, common: dict[str, dict[str, Any]]) -> str:
    """A method's summary, paper, and the settings that differ from the common ones."""
    settings = describe_settings(method.settings_type)
    own = {name: entry for name, entry in settings.items() if entry != common.get(name)}
    needs = "; needs environment labels" if method.traits.needs_environments else ""
    summary = method.summary[0].upper() + method.summary[1:] + needs
    text = f"## {method.label}: `{method.name}`\n\n{summary}. {method.paper}.\n\n"
    if not issubclass(method.settings_type, Settings):
        text += "It is not a network: of the settings of all methods, it has only `scaling`.\n\n"
    return text + (table(own) if own else "This method has no settings of its own.\n")


def table(settings: dict[str, dict[str, Any]]) -> str:
    rows = [
        f"| `{name}` | {format_value(entry['default'])} | {entry['valid'].replace(NO_LIMIT, '')} | "
        f"{', '.join(map(format_value, entry['search'])) or '–'} | {entry['help']} |\n"
        for name, entry in settings.items()
    ]
    return HEADER + "".join(rows)


def format_value(value: Any) -> str:
    """A value in the form that `--set NAME=VALUE` accepts."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def page(text: str) -> str:
    """The page with its tables replaced."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

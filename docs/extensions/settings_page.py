"""The tables of docs/settings.md, made from the settings that methods declare.

`make docs` writes them, and a test holds the page to what the code says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from canet.methods import EVERY_METHOD, Auto, Method, Settings
from canet.settings import describe_settings

PAGE = Path(__file__).parents[1] / "settings.md"
START, END = "<!-- settings -->\n", "<!-- end settings -->"
HEADER = "| setting | default | takes | search | what |\n|---|---|---|---|---|\n"


def tables() -> str:
    """The settings of all methods, then what each method adds, as Markdown."""
    common = describe_settings(Settings)
    parts = ["## For every method\n\n" + table(common)]
    parts += [section(method, common) for method in EVERY_METHOD.values()]
    return "\n".join(parts)


def section(method: type[Method] | type[Auto], common: dict[str, dict[str, Any]]) -> str:
    """A method's summary and paper, and the settings that only it has or has other defaults for."""
    settings = describe_settings(method.settings_type)
    own = {name: entry for name, entry in settings.items() if entry != common.get(name)}
    needs = "; needs environment labels" if method.needs_environments else ""
    summary = method.summary[0].upper() + method.summary[1:] + needs
    text = f"## {method.label}: `{method.name}`\n\n{summary}. {method.paper}.\n\n"
    return text + (table(own) if own else "No settings of its own.\n")


def table(settings: dict[str, dict[str, Any]]) -> str:
    rows = [
        f"| `{name}` | {written(entry['default'])} | {entry['valid']} | "
        f"{', '.join(map(written, entry['search'])) or '–'} | {entry['help']} |\n"
        for name, entry in settings.items()
    ]
    return HEADER + "".join(rows)


def written(value: Any) -> str:
    """A value as it is written after `--set NAME=`."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def page(text: str) -> str:
    """The page with its tables made anew."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""Write docs/reference/command-line.md from the help texts of the command line.

`make docs` runs this module. A test compares the page with the code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from canet.cli import app
from canet.cli.app import GROUPS

PAGE = Path(__file__).parents[1] / "reference" / "command-line.md"
START, END = "<!-- commands -->\n", "<!-- end commands -->"


def sections() -> str:
    """A list of all commands, the options that they share, and one section for each."""
    commands = _commands()
    lines = []
    for title, names in GROUPS.items():
        lines += ["", f"| {title} | |", "|---|---|"]
        for name in names:
            purpose = _cell(_paragraphs(commands[name].help)[0])
            lines.append(f"| [`canet {name}`](#canet-{name}) | {purpose} |")
    shared = _shared(commands)
    table = "\n".join(["| option | meaning |", "|---|---|", *shared])
    text = "\n".join(_section(name, command, shared) for name, command in commands.items())
    return "\n".join(lines[1:]) + f"\n\n## Shared options\n\n{table}\n\n{text}"


def page(text: str) -> str:
    """The page with its generated part replaced."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{sections()}\n{END}{after}"


def _commands() -> dict[str, Any]:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {name: commands[name] for names in GROUPS.values() for name in names}


def _rows(name: str, command: Any) -> list[str]:
    """The rows of a table of arguments and options."""
    context = typer.Context(command, info_name=f"canet {name}")
    records = [parameter.get_help_record(context) for parameter in command.params]
    return [f"| `{_names(record[0])}` | {_cell(record[1])} |" for record in records if record]


def _shared(commands: dict[str, Any]) -> list[str]:
    """The rows of arguments and options that mean the same in several commands."""
    counts = Counter(row for name, command in commands.items() for row in _rows(name, command))
    several = [row for row, count in counts.most_common() if count > 1]
    first = {row.split("`")[1]: row for row in reversed(several)}
    return [row for row in counts if row in first.values()]


def _section(name: str, command: Any, shared: Sequence[str]) -> str:
    """Help text, arguments and options of a command."""
    rows = _rows(name, command)
    own = [row for row in rows if row not in shared]
    table = "\n".join(["| argument or option | meaning |", "|---|---|", *own])
    text = "\n\n".join(_paragraphs(command.help))
    if own:
        text += f"\n\n{table}"
    if others := [row.split("`")[1].split()[0].rstrip(",") for row in rows if row in shared]:
        names = ", ".join(f"`{option}`" for option in others)
        text += f"\n\n[Shared options](#shared-options): {names}."
    return f"## canet {name}\n\n{text}\n"


def _paragraphs(text: str) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def _names(names: str) -> str:
    """`GRAPH <path>` as `GRAPH`, `--seed <int range>` as `--seed INT`."""
    if not names.startswith("-"):
        return names.partition(" <")[0]
    short = re.sub(r"<(path|str|int|float)[^>]*>", lambda found: found[1].upper(), names)
    return re.sub(r"<([^>]*)>", r"\1", short).replace("STR", "TEXT").replace("|", "/")


def _cell(text: str) -> str:
    """A help text as one cell of a table; bounds such as `[0<=x<=9]` become `(0 to 9)`."""
    text = re.sub(r"([\d.]+)<=x<=([\d.]+)", r"\1 to \2", " ".join(text.split()))
    return text.replace("[", "(").replace("]", ")").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

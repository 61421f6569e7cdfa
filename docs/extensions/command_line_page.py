"""Write docs/reference/command-line.md from the help texts of the command line.

`make docs` runs this module. A test compares the page with the code.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from canet.cli import app

PAGE = Path(__file__).parents[1] / "reference" / "command-line.md"
START, END = "<!-- commands -->\n", "<!-- end commands -->"


def sections() -> str:
    """A list of all commands, then one section for each."""
    commands = _commands()
    lines = ["| command | purpose |", "|---|---|"]
    for name, command in commands.items():
        lines.append(f"| [`canet {name}`](#canet-{name}) | {_cell(_paragraphs(command.help)[0])} |")
    return "\n".join(lines) + "\n\n" + "\n".join(map(_section, commands, commands.values()))


def page(text: str) -> str:
    """The page with its generated part replaced."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{sections()}\n{END}{after}"


def _commands() -> dict[str, Any]:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {name: command for name, command in commands.items() if not command.hidden}


def _section(name: str, command: Any) -> str:
    """Help text, usage, arguments and options of a command."""
    context = typer.Context(command, info_name=f"canet {name}")
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    usage = re.sub(r"\{(\w+)\}", r"\1", usage)
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [f"| `{_names(record[0])}` | {_cell(record[1])} |" for record in records if record]
    table = "\n".join(["| argument or option | meaning |", "|---|---|", *rows])
    text = "\n\n".join(_paragraphs(command.help))
    return f"## canet {name}\n\n{text}\n\n```text\n{usage}\n```\n\n{table}\n"


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

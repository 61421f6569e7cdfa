"""What lies beside the runs and goes into the report: figures, tables, failures."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import NamedTuple

from canet.files import read_json
from canet.report.tables import GAP
from canet.runs.worker import FAILURE
from canet.training import RunFolder
from canet.training.checkpoint import CONFIG

TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
MARKS = {"**": "strong", "<u>": "u"}


class Figure(NamedTuple):
    """A picture with its file as a data URI, so that the page needs no other file."""

    title: str
    uri: str


class Text(NamedTuple):
    """A cell's text and the HTML element that marks it, if any."""

    text: str
    element: str

    @property
    def key(self) -> str:
        """What it is sorted by: the number it starts with, or its text; nothing for a gap."""
        number = re.match(r"[-+−]?\d+(\.\d+)?", self.text)
        return number[0].replace("−", "-") if number else self.text.replace(GAP, "")


class Page(NamedTuple):
    """A Markdown file: its title, its paragraphs, and its table."""

    title: str
    notes: list[str]
    heads: list[str]
    rows: list[list[Text]]

    def is_words(self, column: int) -> bool:
        """Whether a column holds no number, so that it is flush left."""
        return not any(row[column].text[-1:].isdigit() for row in self.rows)


class Failure(NamedTuple):
    """A job that failed, and the last lines it left."""

    name: str
    lines: list[str]


def figures(folder: Path) -> list[Figure]:
    """The pictures of a folder by name; the SVG where one was written in both formats."""
    chosen: dict[str, Path] = {}
    for suffix in TYPES:
        for path in folder.glob(f"*{suffix}"):
            chosen.setdefault(path.stem, path)
    return [Figure(_title(stem), _uri(path)) for stem, path in sorted(chosen.items())]


def tables(folder: Path) -> list[Page]:
    """The Markdown tables of a folder by name."""
    return [_page(path) for path in sorted(folder.glob("*.md"))]


def failures(out: Path) -> list[Failure]:
    """The jobs at or below `out` that failed and have not been finished since."""
    found = []
    for path in sorted(out.rglob(FAILURE)):
        place = RunFolder(path.parent)
        if place.finished:
            continue
        name = path.parent.relative_to(out).as_posix()
        if (place.path / CONFIG).exists():
            config = place.read_config()
            name = f"{config.task} {config.method}-{config.backbone}, seed {config.seed} ({name})"
        found.append(Failure(name, read_json(path)["lines"]))
    return found


def _page(path: Path) -> Page:
    title, notes, rows = _title(path.stem), [], []
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8").strip()):
        if block.startswith("#"):
            title = block.lstrip("#").strip()
        elif block.startswith("|"):
            rows += [_cells(line) for line in block.splitlines()]
        else:
            notes.append(" ".join(block.split()))
    heads = [cell.text for cell in rows[0]] if rows else []
    return Page(title, notes, heads, rows[2:])


def _cells(line: str) -> list[Text]:
    return [_text(cell.strip()) for cell in line.strip().strip("|").split("|")]


def _text(cell: str) -> Text:
    """`**95.9**` is strong, `<u>95.9</u>` underlined."""
    for mark, element in MARKS.items():
        if cell.startswith(mark):
            return Text(cell.removeprefix(mark).removesuffix(mark.replace("<", "</")), element)
    return Text(cell, "")


def _title(stem: str) -> str:
    """`ablation-bars-cora` → `Ablation: bars cora`."""
    first, *others = re.split("[-_]", stem)
    return first.capitalize() + (f": {' '.join(others)}" if others else "")


def _uri(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f"data:{TYPES[path.suffix]};base64,{content}"

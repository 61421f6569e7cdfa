"""What lies beside the runs and goes into the report: figures, tables, failures."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import NamedTuple

from canet.files import read_json
from canet.report.tables import Table
from canet.runs.worker import FAILURE
from canet.training import RunFolder
from canet.training.checkpoint import CONFIG

TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


class Figure(NamedTuple):
    """A picture with its file as a data URI, so that the page needs no other file."""

    title: str
    uri: str


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


def tables(folder: Path) -> list[Table]:
    """The tables of a folder by name."""
    return [Table.read(path) for path in sorted(folder.glob("*.json"))]


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
        found.append(Failure(name, _lines(path)))
    return found


def _lines(path: Path) -> list[str]:
    """The last lines that a failed job left; that there are none where its file is damaged."""
    try:
        return [str(line) for line in read_json(path)["lines"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ["what it left is damaged"]


def _title(stem: str) -> str:
    """`ablation-bars-cora` → `Ablation: bars cora`."""
    first, *others = re.split("[-_]", stem)
    return first.capitalize() + (f": {' '.join(others)}" if others else "")


def _uri(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f"data:{TYPES[path.suffix]};base64,{content}"

"""What goes into the report besides the runs: figures, tables, failures."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import NamedTuple

from canet.report.tables import Table
from canet.runs.worker import FAILURE
from canet.store import RunFolder
from canet.store.folders import folders_below
from canet.store.run_folder import CONFIG
from canet.util.files import read_json

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
    return [_figure(path) for _, path in sorted(chosen.items())]


def tables(folder: Path) -> list[Table]:
    """The tables of a folder by name."""
    return [Table.read(path) for path in sorted(folder.glob("*.json"))]


def failures(out: Path) -> list[Failure]:
    """The jobs at or below `out` that failed and have not been finished since."""
    found = []
    for folder in folders_below(out):
        place = RunFolder(folder)
        if not place.finished and (folder / FAILURE).exists():
            name = folder.relative_to(out).as_posix()
            if (folder / CONFIG).exists():
                config = place.read_config()
                job = f"{config.task} {config.method}-{config.backbone}, seed {config.seed}"
                name = f"{job} ({name})"
            found.append(Failure(name, read_json(folder / FAILURE)["lines"]))
    return found


def _figure(path: Path) -> Figure:
    """`ablation-bars-cora.svg` has the title `Ablation: bars cora`."""
    first, *others = re.split("[-_]", path.stem)
    title = first.capitalize() + (f": {' '.join(others)}" if others else "")
    content = base64.b64encode(path.read_bytes()).decode()
    return Figure(title, f"data:{TYPES[path.suffix]};base64,{content}")

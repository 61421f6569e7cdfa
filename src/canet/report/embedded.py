"""What lies beside the runs and goes into the report: figures, tables, failures."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from canet.errors import CanetError
from canet.report.tables import Table
from canet.runs.worker import FAILURE
from canet.store import RunFolder
from canet.store.folders import folders_below
from canet.store.run_folder import CONFIG
from canet.util.files import read_json

T = TypeVar("T")
TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


class Figure(NamedTuple):
    """A picture with its file as a data URI, so that the page needs no other file."""

    title: str
    uri: str


class Failure(NamedTuple):
    """A job that failed, and the last lines it left."""

    name: str
    lines: list[str]


def figures(folder: Path) -> tuple[list[Figure], list[str]]:
    """The pictures of a folder by name, and a line for each that cannot be read.

    The SVG where one was written in both formats.
    """
    chosen: dict[str, Path] = {}
    for suffix in TYPES:
        for path in folder.glob(f"*{suffix}"):
            chosen.setdefault(path.stem, path)
    return _readable([path for _, path in sorted(chosen.items())], _figure)


def tables(folder: Path) -> tuple[list[Table], list[str]]:
    """The tables of a folder by name, and a line for each that cannot be read."""
    return _readable(sorted(folder.glob("*.json")), Table.read)


def failures(out: Path) -> list[Failure]:
    """The jobs at or below `out` that failed and have not been finished since."""
    found = []
    for folder in folders_below(out):
        place = RunFolder(folder)
        if place.finished or not os.path.lexists(folder / FAILURE):
            continue
        name = folder.relative_to(out).as_posix()
        if (folder / CONFIG).exists():
            name = f"{_told(place)} ({name})"
        found.append(Failure(name, _lines(folder / FAILURE)))
    return found


def _readable(paths: Iterable[Path], read: Callable[[Path], T]) -> tuple[list[T], list[str]]:
    """What comes of those files that can be read, and a line for each of the others."""
    found, left_out = [], []
    for path in paths:
        try:
            found.append(read(path))
        except CanetError as error:
            left_out.append(str(error).replace(f"{path.parent.parent}{os.sep}", ""))
        except OSError as error:
            left_out.append(f"'{path.parent.name}/{path.name}' cannot be read ({error.strerror})")
    return found, left_out


def _told(place: RunFolder) -> str:
    """What a job was to train."""
    try:
        config = place.read_config()
    except CanetError:
        return f"a job whose {CONFIG} cannot be read"
    return f"{config.task} {config.method}-{config.backbone}, seed {config.seed}"


def _lines(path: Path) -> list[str]:
    """The last lines that a failed job left; that there are none where its file is damaged."""
    try:
        return [str(line) for line in read_json(path)["lines"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return ["what it left is damaged"]


def _title(stem: str) -> str:
    """`ablation-bars-cora` → `Ablation: bars cora`."""
    first, *others = re.split("[-_]", stem)
    return first.capitalize() + (f": {' '.join(others)}" if others else "")


def _figure(path: Path) -> Figure:
    content = base64.b64encode(path.read_bytes()).decode()
    return Figure(_title(path.stem), f"data:{TYPES[path.suffix]};base64,{content}")

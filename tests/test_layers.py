"""Data goes one way: an import never points to a room further on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import canet

ROOT = Path(canet.__file__).parent
ROOMS = [
    {
        "colour",
        "errors",
        "files",
        "interruption",
        "lock",
        "memory",
        "progress",
        "seeds",
        "settings",
        "sparse",
    },
    {"data"},
    {"nn"},
    {"methods"},
    {"console", "training"},
    {"column_screen", "estimator", "model_content", "model_folder", "predictions", "reference"},
    {"presets", "runs"},
    {"search"},
    {"report"},
    {"diagnosis"},
    {"bench", "demo", "paper", "verify"},
    {"cli"},
]
"""From raw files to commands; rooms of one line may know each other."""
UNKNOWN = {"report": {"presets"}}
"""What a room does not know though it stands before: it comes to the report as data."""


def level(name: str) -> int:
    (found,) = [i for i, rooms in enumerate(ROOMS) if name in rooms]
    return found


def imported(path: Path) -> Iterator[str]:
    """The rooms that a file imports from, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
            if node.module == "canet":
                names = [f"canet.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "canet" and len(parts) > 1 and parts[1] != "__version__":
                yield parts[1]


FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_points_up(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for name in imported(path):
        assert level(name) <= level(room), f"{room} imports {name}"
        assert name not in UNKNOWN.get(room, ()), f"{room} imports {name}"

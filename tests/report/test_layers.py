from __future__ import annotations

import ast
from pathlib import Path

import pytest

import canet.report

FILES = sorted(Path(canet.report.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_report_knows_nothing_of_the_paper_nor_of_presets(path: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    assert not [name for name in found if name.startswith(("canet.paper", "canet.presets"))]

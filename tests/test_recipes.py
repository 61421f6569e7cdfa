"""Every recipe in docs/reference/formats.md creates a graph, if its packages are installed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "formats.md"


def recipes() -> dict[str, str]:
    """All Python blocks below each heading, as one script."""
    found = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        blocks = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        if blocks:
            found[section.partition("\n")[0]] = "\n".join(blocks)
    return found


def missing_packages(script: str) -> list[str]:
    names = re.findall(r"^(?:import|from) (\w+)", script, re.MULTILINE)
    return sorted({name for name in names if find_spec(name) is None})


def test_the_page_has_a_recipe_for_each_source() -> None:
    sources = ("pandas", "NetworkX", "Neo4j", "DGL", "numpy", "PyG")
    headings = " ".join(recipes())
    assert [source for source in sources if source not in headings] == []


@pytest.mark.parametrize("heading", recipes())
def test_a_recipe_creates_a_graph(
    heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = recipes()[heading]
    if missing := missing_packages(script):
        pytest.skip(f"{', '.join(missing)} is not installed")
    (tmp_path / "graph").mkdir()
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "recipe"}
    exec(compile(script, heading, "exec"), space)
    data = space.get("again", space["data"])
    assert isinstance(data, Data)
    assert data.x.dtype == torch.float32
    assert data.edge_index.shape[1] > 0
    assert len(data.y) == data.num_nodes

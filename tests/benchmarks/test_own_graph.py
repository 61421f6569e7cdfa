from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import own_graph


@pytest.mark.parametrize("name", ["table, 10⁵", "words, sparse"])
def test_every_stage_is_measured(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_graph, "SHAPES", {name: (300, 120)})
    monkeypatch.setattr(own_graph, "EPOCHS", {name: 1})
    found = own_graph.measure(name, tmp_path, "cpu", with_diagnosis=False)
    stages = {*own_graph.STAGES} - {"diagnose"} - ({"read"} if name.startswith("words") else set())
    assert {*found} == stages
    assert found["peak GB"] > 0.05

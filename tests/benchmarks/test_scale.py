"""The benchmark of large graphs."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.rmat import RMat
from benchmarks.scale import bytes_of_step, measure_in_process
from benchmarks.scale_report import draw_default, draw_scale, scale_table

RESULTS = Path(__file__).parents[2] / "results" / "performance"


def test_labels_and_features_are_correlated_with_the_edges() -> None:
    graph = RMat(3_000, 40_000, 8)
    y = graph.labels()
    source, target = (torch.cat(ends) for ends in zip(*graph.edges(), strict=True))
    rowptr, neighbours = graph.neighbours()
    owner = torch.arange(3_000).repeat_interleave(rowptr.diff())
    shuffled = y[torch.randperm(3_000, generator=torch.Generator().manual_seed(0))]
    for u, v in ((source, target), (neighbours.long(), owner)):
        assert u.numel() == v.numel() == 40_000
        same, by_chance = ((labels[u] == labels[v]).float().mean() for labels in (y, shuffled))
        assert same > 1.3 * by_chance
    x = torch.cat(list(graph.features(y)))
    assert x.shape == (3_000, 8)
    between = torch.stack([x[y == label].mean(0) for label in y.unique()]).std(0)
    assert (between > 0.5).all()


@pytest.mark.slow
def test_a_small_graph_is_converted_trained_and_predicted(tmp_path: Path) -> None:
    found = measure_in_process("cpu", 20_000, 1, str(tmp_path))
    assert (found["nodes"], found["seeds"]) == (20_000, 2_000)
    assert all(value > 0 for value in found.values())
    assert not list(tmp_path.iterdir())
    draw_scale([found, found | {"nodes": 40_000}], tmp_path / "scale.json")
    assert (tmp_path / "scale.svg").exists()


@pytest.mark.slow
def test_the_default_is_measured_and_drawn(tmp_path: Path) -> None:
    found = measure_in_process("default", 1_000, 1, str(tmp_path), 0, "cpu")
    assert found["default models"] == 1
    assert 0 < found["default first s"] <= found["default s"]
    assert not list(tmp_path.iterdir())
    draw_default([found, found | {"nodes": 2_000}], tmp_path / "default.json")
    assert (tmp_path / "default.svg").exists()
    assert "| default, compared models | 1 | – |" in scale_table([found, {"nodes": 2_000}])


@pytest.mark.parametrize(
    ("name", "page", "least"),
    [
        ("scale-cpu", "results/performance/details.md", 9),
        ("scale-h200", "results/performance/details.md", 9),
        ("scale-default-*", "docs/guide/large-graphs.md", 7),
    ],
)
def test_the_tables_of_the_page_are_those_of_the_measurements(
    name: str, page: str, least: int
) -> None:
    files = sorted(RESULTS.glob(f"{name}.json"))
    table = scale_table([found for file in files for found in json.loads(file.read_text())])
    text = (RESULTS.parents[1] / page).read_text()
    rows = [row.replace("default, ", "") for row in table.splitlines()[2:]]
    assert len(rows) >= least
    assert all(row in text for row in rows)


def test_counted_bytes_grow_with_every_size() -> None:
    sizes = [[10, 10], [30, 40], [90, 120]]
    counted = bytes_of_step(sizes)
    for hop in range(3):
        for kind in range(2):
            if (hop, kind) != (0, 1):  # the first number of neighbours is not one
                more = [list(row) for row in sizes]
                more[hop][kind] += 5
                assert bytes_of_step(more) > counted

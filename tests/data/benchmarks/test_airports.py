from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from canet.data import DATASETS, load_task
from canet.data.benchmarks.roles import role_ranks
from canet.data.task import ShiftTask
from tests.support.raw_files import without_checksums


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> Path:
    """Twelve airports per region with ids 0, 10, ... in reverse order; the class is id / 10 mod 4.

    The flights form a chain. One flight is listed in both directions, and one is a self-loop.
    """
    without_checksums(monkeypatch)
    folder = tmp_path / "raw" / "airports"
    folder.mkdir(parents=True)
    for region in ("brazil", "europe", "usa"):
        labels = "".join(f"{10 * i} {i % 4}\n" for i in reversed(range(12)))
        (folder / f"labels-{region}-airports.txt").write_text(f"node label\n{labels}")
        chain = "".join(f"{10 * i} {10 * i + 10}\n" for i in range(11))
        (folder / f"{region}-airports.edgelist").write_text(f"{chain}10 0\n30 30\n")
    return tmp_path / "raw"


def test_airports_are_sorted_by_id(root: Path) -> None:
    task = load_task("airports", root)
    assert task.data.y.equal(torch.arange(4).repeat(9))
    chain = {(i, i + 1) for i in range(11)} | {(i + 1, i) for i in range(11)}
    expected = {(u + 12 * r, v + 12 * r) for u, v in chain for r in range(3)}
    assert sorted(zip(*task.data.edge_index.tolist(), strict=True)) == sorted(expected)


def test_features_of_a_region_depend_only_on_its_network(root: Path) -> None:
    before = load_task("airports", root, protocol="europe").data
    path = root / "airports" / "usa-airports.edgelist"
    path.write_text(path.read_text() + "0 70\n20 70\n")
    after = load_task("airports", root, protocol="europe").data
    usa = before.batch == 2
    assert after.x[~usa].equal(before.x[~usa])
    assert not after.x[usa].equal(before.x[usa])
    assert before.x[:12].equal(role_ranks(before.edge_index[:, :22], 12))


def test_real_regions_have_their_published_size(real_task: Callable[..., ShiftTask]) -> None:
    task = real_task("airports")
    sizes = {"brazil": (131, 1003), "europe": (399, 5993), "usa": (1190, 13599)}
    assert DATASETS["airports"].protocols == tuple(sizes)
    for number, (nodes, flights) in enumerate(sizes.values()):
        inside = task.data.batch == number
        assert int(inside.sum()) == nodes
        assert int(inside[task.data.edge_index[0]].sum()) == 2 * flights
        counts = torch.bincount(task.data.y[inside])
        assert counts.numel() == 4
        assert counts.max() - counts.min() <= 3
        assert 0 < task.data.x[inside].min() < task.data.x[inside].max() < 1

"""Crossings and accidents in sixteen cities."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from canet.data import load_task
from canet.data.benchmarks.roads import CITIES
from canet.data.task import ShiftTask
from tests.support.raw_files import without_checksums


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cities of six crossings with a ring of roads; the columns of the files differ."""
    without_checksums(monkeypatch)
    (tmp_path / "roads").mkdir()
    crossings, random = np.arange(6), np.random.default_rng(0)
    for number, city in enumerate(CITIES):
        roads = np.stack([crossings, (crossings + 1) % 6], axis=1)
        np.savez(
            tmp_path / "roads" / f"{city}.npz",
            x=random.integers(1, 5, (6, 3 + number % 3)),
            occur_labels=crossings % 2,
            edge_index=np.concatenate([roads, [[0, 2]]]),
            edge_attr=random.random((7, 11 + number % 4)),
            edge_attr_dir=random.random((7, 2)),
            edge_attr_ang=random.random((7, 3)),
            crash_time=np.array([{"pickled": 1}], dtype=object),
        )
    return tmp_path


def test_columns_are_means_over_incoming_roads_and_standardised_by_the_training_city(
    root: Path,
) -> None:
    city = "manor_tx"
    task = load_task("roads", root, protocol=city)
    with np.load(root / "roads" / f"{city}.npz") as raw:
        roads = np.concatenate(
            [raw["edge_attr"][:, :1], raw["edge_attr_dir"], raw["edge_attr_ang"]], 1
        )
        expected = np.stack(
            [
                [raw["x"][v, 0], (into := raw["edge_index"][:, 1] == v).sum(), *roads[into].mean(0)]
                for v in range(6)
            ]
        )
    expected = (expected - expected.mean(axis=0)) / expected.std(axis=0, ddof=1)
    own = task.data.x[task.in_distribution]
    assert own.numpy() == pytest.approx(expected, abs=1e-5)
    assert len(task.test_ood) == 15


def test_the_real_cities_have_their_published_share_of_accidents(
    real_task: Callable[..., ShiftTask],
) -> None:
    task = real_task("roads")
    shares = [task.data.y[task.data.batch == i].double().mean() for i in range(16)]
    assert torch.stack(shares).min() == pytest.approx(0.098, abs=1e-3)
    assert torch.stack(shares).max() == pytest.approx(0.548, abs=1e-3)

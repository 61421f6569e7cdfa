"""A process that loads and predicts many times does not leak memory or files."""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import canet
from canet.data.graph_files.arrays import write_npz
from canet.errors import InputError
from tests.support.user_graphs import small_user_graph
from tests.support.user_tables import ROLES, write_folder

TIMES = 200
MAX_GROWTH = 48
"""Megabytes by which the process may grow, much less than 200 copies of any object here."""


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def check_bounded(act: Callable[[], object], times: int = TIMES) -> None:
    """Assert that repeated calls leave no file open and do not use more and more memory."""
    for _ in range(times // 4):
        act()
    gc.collect()
    files, memory = open_files(), resident_megabytes()
    for _ in range(times):
        act()
    gc.collect()
    assert open_files() <= files
    assert resident_megabytes() - memory < MAX_GROWTH


pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


@pytest.mark.slow
def test_loading_and_predicting_does_not_leak(tmp_path: Path) -> None:
    data = small_user_graph()
    quick = {"epochs": 1, "hidden": 64, "num_environments": 2, "device": "cpu", "verbose": 0}
    fitted = canet.NodeClassifier("canet", **quick)
    fitted.fit(data).save(tmp_path / "model")
    check_bounded(lambda: canet.load(tmp_path / "model").predict_proba(data))


def test_reading_a_graph_does_not_leak(tmp_path: Path) -> None:
    write_npz(tmp_path / "graph.npz", small_user_graph())
    write_folder(tmp_path / "graph")
    check_bounded(lambda: canet.read_graph(tmp_path / "graph.npz"), 40)
    check_bounded(lambda: canet.read_graph(tmp_path / "graph", **ROLES), 40)


def test_rejected_files_are_closed(tmp_path: Path) -> None:
    for name in ("graph.npz", "graph.pt"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 and then nothing")

        def read(path: Path = tmp_path / name) -> None:
            with pytest.raises(InputError):
                canet.read_graph(path)

        check_bounded(read, 40)

"""Fixtures for data sets: a local server, tasks from published files, and faster features."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
import torch

from canet.data import file_status, load_task
from canet.data.task import ShiftTask
from tests.support.server import Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.resume.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def real_task(data_root: Path) -> Callable[..., ShiftTask]:
    """A function that loads a task from its published files; skips the test if one is missing."""

    def load(name: str, **options: object) -> ShiftTask:
        missing = [f.path for f in file_status(name, data_root) if f.state == "missing"]
        if missing:
            pytest.skip(f"'{missing[0]}' is not in CANET_DATA_ROOT")
        return load_task(name, data_root, **options)

    return load


@pytest.fixture
def no_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace structural features by zeros, because the singular vectors take long to compute."""
    monkeypatch.setattr(
        "canet.data.benchmarks.structural.structural_features",
        lambda edge_index, known: torch.zeros(known.numel(), 128),
    )

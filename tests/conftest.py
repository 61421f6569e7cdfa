"""Fixtures for all tests: no test touches the home folder, and real data is used where it lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One empty cache folder for the whole session, in place of the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANET_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real raw files, or a skip where there is none."""
    root = os.environ.get("CANET_DATA_ROOT")
    if not root or not Path(root).is_dir():
        pytest.skip("CANET_DATA_ROOT names no folder of raw data")
    return Path(root)

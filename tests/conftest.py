"""Fixtures for all tests: an isolated cache, and raw data if it is available."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run in parallel, one per core
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import torch

from canet.util import torch_state
from tests.support.raw_files import without_checksums, write_arxiv, write_elliptic, write_twitch

pytest_plugins = [
    "tests.support.ray_cluster",
    "tests.support.searches",
    "tests.support.small_task",
]

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before PyG imports Triton


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, because the graphs of the tests are too small for more."""
    torch.set_num_threads(1)
    torch_state._limit = 1  # a run does not search for libraries with threads
    gc.freeze()  # searches for garbage then skip what the imports made, and are fast
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary cache folder for the whole session, and files that do not wait for the disk."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANET_CACHE", str(folder))
        patch.setattr(os, "fsync", lambda file: None)
        yield folder


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for one test, without CANET_DATA_ROOT."""
    monkeypatch.setenv("CANET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CANET_DATA_ROOT", raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with the published raw files; tests are skipped without it."""
    root = os.environ.get("CANET_DATA_ROOT")
    if not root or not Path(root).is_dir():
        pytest.skip("CANET_DATA_ROOT is not a folder with raw data")
    return Path(root)


@pytest.fixture(scope="session")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("raw")
    write_twitch(root)
    write_arxiv(root)
    write_elliptic(root)
    return root


@pytest.fixture
def small_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path, small_files: Path
) -> Path:
    """A data root with small Twitch, Arxiv and Elliptic files in the published layout."""
    without_checksums(monkeypatch)
    return Path(shutil.copytree(small_files, tmp_path / "raw"))

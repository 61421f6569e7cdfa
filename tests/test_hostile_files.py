"""Malicious files in every loader are read safely or rejected in one line; no code is run."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import canet
from canet.data.benchmarks.processed import processed
from canet.defaults import read_settings
from canet.errors import CanetError
from canet.store import RunFolder
from canet.store.archive import open_runs
from canet.store.run_folder import read_checkpoint
from canet.store.summary import read_run
from tests.support.finished import make_config, write_run
from tests.support.hostile import hostile_files
from tests.support.user_graphs import small_user_graph
from tests.support.user_tables import write_folder


@dataclass(frozen=True)
class Loader:
    """A loader and the path of the file that it reads, in a folder that `prepare` fills."""

    name: str
    path: str
    read: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda folder: None
    rejects_all: bool = False


def without(name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        write_folder(folder / "graph")
        (folder / "graph" / name).unlink()

    return prepare


def model(folder: Path) -> None:
    classifier = canet.NodeClassifier("erm", epochs=1, hidden=4, device="cpu", verbose=0)
    classifier.fit(small_user_graph()).save(folder / "model")
    (weights,) = (folder / "model").glob("weights-*")
    (folder / "weights").symlink_to(weights)


def load_model(folder: Path) -> object:
    return canet.load(folder / "model", "cpu")


def run(folder: Path) -> None:
    finished = write_run(folder, make_config(), {"test_id": 0.8, "ood/near": 0.5})
    finished.path.rename(folder / "run")


def load_weights(folder: Path) -> None:
    RunFolder(folder / "run").load_weights(torch.nn.Linear(2, 2))


def read_checkpoints(folder: Path) -> None:
    read_checkpoint(folder / "checkpoint-3-0123456789abcdef.safetensors")


def unpack_runs(folder: Path) -> None:
    with open_runs(folder / "runs.tar.xz") as root:
        read_run(RunFolder(root / "run"))


def read_copy(folder: Path) -> None:
    """A processed copy that was replaced by another file is built again."""
    hostile = folder / "cache" / "processed" / "any"
    for copy in hostile.parent.glob("*.npz"):
        shutil.copy(hostile, copy)
    assert processed("name", "identity", lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]


LOADERS = [
    Loader("read_graph .npz", "graph.npz", lambda f: canet.read_graph(f / "graph.npz")),
    Loader("read_graph .pt", "graph.pt", lambda f: canet.read_graph(f / "graph.pt")),
    *(
        Loader(
            f"read_graph {name}",
            f"graph/{name}",
            lambda f: canet.read_graph(f / "graph"),
            without(replaced),
        )
        for name, replaced in (("nodes.csv", "nodes.csv"), ("edges.parquet", "edges.csv"))
    ),
    Loader("model.json", "model/model.json", load_model, model, rejects_all=True),
    Loader("weights of a model", "weights", load_model, model, rejects_all=True),
    *(
        Loader(
            f"{name} of a run",
            f"run/{name}",
            lambda f: read_run(RunFolder(f / "run")),
            run,
            rejects_all=True,
        )
        for name in ("config.json", "result.json", "done")
    ),
    Loader("weights of a run", "run/weights.safetensors", load_weights, run, rejects_all=True),
    Loader(
        "checkpoint",
        "checkpoint-3-0123456789abcdef.safetensors",
        read_checkpoints,
        rejects_all=True,
    ),
    Loader("archive of runs", "runs.tar.xz", unpack_runs, rejects_all=True),
    Loader("settings", "best.json", lambda f: read_settings(f / "best.json")),
    Loader("processed copy", "cache/processed/any", read_copy),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    canary = tmp_path_factory.mktemp("canary") / "was-run"
    return canary, hostile_files(canary)


def outcome(act: Callable[[], object]) -> str:
    """`read`, `rejected` (a canet error with one short line), or the other exception."""
    try:
        act()
    except CanetError as error:
        line = str(error)
        return "rejected" if 0 < len(line) < 1000 and "\n" not in line else f"long: {line[:99]}"
    except Exception as error:
        return repr(error)[:200]
    return "read"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: loader.name)
def test_malicious_files_are_rejected_or_read_safely(
    loader: Loader,
    hostile: tuple[Path, dict[str, bytes]],
    tmp_path: Path,
    fresh_cache: Path,
) -> None:
    canary, contents = hostile
    loader.prepare(tmp_path)
    path = tmp_path / loader.path
    path.parent.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for name, content in contents.items():
        path.write_bytes(content)
        outcomes[name] = outcome(lambda: loader.read(tmp_path))
        assert not canary.exists(), name
        assert not (tmp_path.parent / canary.name).exists(), name
    allowed = {"rejected"} if loader.rejects_all else {"rejected", "read"}
    assert {name: result for name, result in outcomes.items() if result not in allowed} == {}


def test_the_files_do_run_code_if_they_are_unpickled(
    hostile: tuple[Path, dict[str, bytes]],
) -> None:
    canary, contents = hostile
    for name in ("pickle, protocol 0", "pickle, protocol 5", "pickle: builtins"):
        pickle.loads(contents[name])
        assert canary.exists(), name
        canary.unlink()

"""Hostile files into every loader there is: read harmlessly or refused in one line, never run."""

from __future__ import annotations

import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import canet
from canet.cli.verification import verify
from canet.data import load_task
from canet.data.benchmarks import sources
from canet.data.benchmarks.download import Member, extract
from canet.data.benchmarks.planetoid import load_pickle
from canet.data.benchmarks.processed import processed
from canet.data.benchmarks.raw import obtain, status
from canet.data.benchmarks.sources import RawFile
from canet.data.graph_files import inspect_graph
from canet.errors import CanetError
from canet.paper.paper_report import write_report
from canet.presets import collect, read_settings
from canet.report.results import find_results
from canet.store import RunFolder
from canet.store.archive import runs_at
from canet.store.model_folder import read_model, write_model
from canet.store.tensors import unpack
from canet.util.files import sha256
from tests.finished import make_config, write_run
from tests.hostile import hostile_entries, hostile_files, hostile_references
from tests.own_graphs import own_graph
from tests.own_tables import write_folder


@dataclass(frozen=True)
class Loader:
    """Who reads a file, and where: `place` is below a folder that `prepare` fills."""

    name: str
    place: str
    read: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda folder: None
    refuses_all: bool = False


def read_table_of(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        canet.read_graph(folder / name)
        return inspect_graph(folder / name).lines()

    return read


def tables(folder: Path) -> None:
    write_folder(folder / "graph")


def without(name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        tables(folder)
        (folder / "graph" / name).unlink()

    return prepare


def model(folder: Path) -> None:
    classifier = canet.NodeClassifier("erm", epochs=1, hidden=4, device="cpu", verbose=0)
    classifier.fit(own_graph()).save(folder / "model")


def load_model(folder: Path) -> object:
    """A model, one of its files of tensors replaced."""
    (tensors,) = (folder / "model").glob("weights-*")
    shutil.copy(folder / "tensors", tensors)
    return canet.load(folder / "model")


def run(folder: Path) -> None:
    place = write_run(folder, make_config(), {"test_id": 80.0, "ood/near": 50.0})
    place.path.rename(folder / "run")


def load_weights(folder: Path) -> None:
    RunFolder(folder / "run").load_weights(torch.nn.Linear(2, 2))


def load_task_of(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        features = None if name == "twitch" else "structural"
        own = load_task(name, folder)
        return own, load_task(name, folder, features=features)

    return read


def raw_file(name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        from tests.conftest import write_arxiv, write_elliptic, write_twitch

        {"arxiv": write_arxiv, "elliptic": write_elliptic, "twitch": write_twitch}[name](folder)

    return prepare


def open_journal(folder: Path) -> object:
    from canet.search.storage import open_storage

    return open_storage(str(folder / "journal.log")).get_all_studies()


def go_on_with_search(folder: Path) -> object:
    from canet.search.search import _begin
    from canet.search.study import Plan

    return _begin(Plan(make_config(), "tpe", 1), folder)


def unpack_runs(folder: Path) -> None:
    with runs_at(folder / "runs.tar.xz") as root:
        find_results(root)


def published_pickle(folder: Path) -> object:
    """As if a published file were the hostile one: its checksum is right."""
    path = folder / "ind.cora.graph"
    return load_pickle(path, sha256(path))


FILE = RawFile("set/file", None)


def cached(folder: Path) -> None:
    (folder / "cache" / "set").mkdir(parents=True)
    (folder / "cache" / "set" / "file").write_bytes(b"1,2")


def first_use(folder: Path) -> object:
    return status(FILE, None), obtain([FILE], None)


def read_copy(folder: Path) -> None:
    """A processed copy is made anew where another file lies in its place."""
    hostile = folder / "cache" / "processed" / "any"
    for copy in hostile.parent.glob("*.npz"):
        shutil.copy(hostile, copy)
    for _ in range(2):
        assert processed("name", "identity", lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]


LOADERS = [
    Loader("read_graph .npz", "graph.npz", read_table_of("graph.npz")),
    Loader("read_graph .pt", "graph.pt", read_table_of("graph.pt")),
    *(
        Loader(f"read_graph {name}", f"graph/{name}", read_table_of("graph"), without(beside))
        for name, beside in (
            ("nodes.csv", "nodes.csv"),
            ("edges.csv", "edges.csv"),
            ("nodes.parquet", "nodes.csv"),
            ("edges.parquet", "edges.csv"),
        )
    ),
    Loader(
        "load model.json",
        "model/model.json",
        lambda folder: canet.load(folder / "model"),
        model,
        refuses_all=True,
    ),
    Loader("load tensors", "tensors", load_model, model, refuses_all=True),
    Loader(
        "tensors with the right checksum",
        "tensors",
        lambda f: unpack((f / "tensors").read_bytes(), f / "tensors"),
    ),
    *(
        Loader(f"report {name}", f"run/{name}", lambda f: write_report(f, f / "page.html"), run)
        for name in ("config.json", "result.json", "metrics.json")
    ),
    Loader("weights of a run", "run/weights.safetensors", load_weights, run, True),
    Loader("archive of runs", "runs.tar.xz", unpack_runs, refuses_all=True),
    Loader("checksums of raw files", "cache/set/checksums.json", first_use, cached),
    Loader("processed copy", "cache/processed/any", read_copy),
    Loader("searches", "search/best.json", lambda f: collect([f])),
    Loader("settings", "best.json", lambda f: read_settings(f / "best.json")),
    Loader("journal of a search", "journal.log", open_journal),
    Loader("plan of a search", "search.json", go_on_with_search, refuses_all=True),
    Loader("published pickle", "ind.cora.graph", published_pickle),
    *(
        Loader(f"raw {place}", place, load_task_of(task), raw_file(task))
        for task, place in (
            ("arxiv", "arxiv/raw/edge.csv.gz"),
            ("arxiv", "arxiv/raw/node-feat.csv.gz"),
            ("arxiv", "arxiv/raw/node_year.csv.gz"),
            ("elliptic", "elliptic/raw/elliptic_txs_features.csv"),
            ("elliptic", "elliptic/raw/elliptic_txs_classes.csv"),
            ("elliptic", "elliptic/time_steps.csv"),
            ("twitch", "twitch/DE/musae_DE_features.json"),
            ("twitch", "twitch/FR/musae_FR_target.csv"),
            ("twitch", "twitch/RU/musae_RU_edges.csv"),
        )
    ),
    Loader(
        "archive of raw files",
        "raw.zip",
        lambda f: extract(f / "raw.zip", [Member(f / "out", ("file",), None)]),
        refuses_all=True,
    ),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    canary = tmp_path_factory.mktemp("canary") / "was-run"
    return canary, hostile_files(canary)


@pytest.fixture
def no_checksums(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> Iterator[None]:
    """Raw files are believed, as those are whose published checksum is not known."""
    monkeypatch.setattr(sources, "KNOWN", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def outcome(act: Callable[[], object]) -> str:
    """`taken`, `refused` by one of our errors in one short line, or what else was raised."""
    try:
        act()
    except CanetError as error:
        line = str(error)
        return "refused" if 0 < len(line) < 1000 and "\n" not in line else f"long: {line[:99]}"
    except Exception as error:
        return repr(error)[:200]
    return "taken"


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: loader.name)
def test_hostile_files_are_refused_or_read_harmlessly(
    loader: Loader,
    hostile: tuple[Path, dict[str, bytes]],
    tmp_path: Path,
    no_checksums: None,
    record_property: Callable[[str, object], None],
) -> None:
    canary, contents = hostile
    loader.prepare(tmp_path)
    place = tmp_path / loader.place
    place.parent.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for name, content in contents.items():
        place.write_bytes(content)
        outcomes[name] = outcome(lambda: loader.read(tmp_path))
        assert not canary.exists(), name
        assert not (tmp_path.parent / canary.name).exists(), name
    record_property("tried", len(outcomes))
    record_property("refused", list(outcomes.values()).count("refused"))
    harmless = {"refused"} if loader.refuses_all else {"refused", "taken"}
    assert {name: said for name, said in outcomes.items() if said not in harmless} == {}


def test_code_in_a_file_would_be_noticed(hostile: tuple[Path, dict[str, bytes]]) -> None:
    canary, contents = hostile
    for name in ("pickle, protocol 0", "pickle, protocol 5", "pickle: builtins"):
        pickle.loads(contents[name])
        assert canary.exists(), name
        canary.unlink()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    model(folder)
    return folder / "model"


def load_and_verify(folder: Path) -> None:
    """`canet verify` loads a model; what it finds wrong is raised."""
    for problem in verify(folder).problems:
        raise CanetError(problem)


def test_models_that_are_sealed_and_yet_none_are_refused_by_load_and_verify(
    saved: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    content, tensors = read_model(saved)
    del content["files"], content["format"]
    assert "screen.share" in tensors["reference"]
    models = {name: (content | c, tensors) for name, c in hostile_entries(content).items()}
    wrong = {
        "reference": hostile_references(tensors["reference"]),
        "weights": {name: {name: t.double()} for name, t in tensors["weights"].items()},
    }
    for file, changes in wrong.items():
        for name, change in changes.items():
            models[name] = content, tensors | {file: tensors[file] | change}
    outcomes = {}
    for name, parts in models.items():
        write_model(tmp_path / "model", *parts)
        outcomes[name] = outcome(lambda: load_and_verify(tmp_path / "model"))
    record_property("tried", len(outcomes))
    record_property("refused", list(outcomes.values()).count("refused"))
    assert {name: said for name, said in outcomes.items() if said != "refused"} == {}
    write_model(tmp_path / "model", content, tensors)
    assert outcome(lambda: load_and_verify(tmp_path / "model")) == "taken"


@pytest.mark.parametrize("without", [{"findings"}, {"screen"}, {"findings", "screen"}])
def test_models_of_earlier_versions_are_read(
    without: set[str], saved: Path, tmp_path: Path
) -> None:
    content, tensors = read_model(saved)
    for entry in {"files", "format"} | (without - {"screen"}):
        del content[entry]
    kept = {n: t for n, t in tensors["reference"].items() if n.split(".")[0] not in without}
    assert (len(kept) < len(tensors["reference"])) == ("screen" in without)
    write_model(tmp_path, content, tensors | {"reference": kept})
    assert verify(tmp_path).problems == []
    loaded = canet.load(tmp_path)
    assert loaded.predict(own_graph()).tolist() == canet.load(saved).predict(own_graph()).tolist()
    assert canet.diagnose(loaded, own_graph(), own_graph(31, seed=1), repeats=1).to_json()

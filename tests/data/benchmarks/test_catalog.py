import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canet.data import DATASETS, GENERATORS, describe, file_status, load_task
from canet.data.benchmarks import catalog
from canet.data.benchmarks.dataset import PROTOCOLS
from canet.data.benchmarks.spurious import NUM_DOMAINS
from canet.data.task import ShiftTask
from canet.errors import CanetError, InputError

LoadTask = Callable[..., ShiftTask]


def test_importing_the_catalogue_does_not_import_torch() -> None:
    code = "import sys, canet.data; sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", DATASETS)
def test_data_sets_are_listed_by_their_names(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.name == name
    spurious = dataset.shift == "spurious features"
    assert (dataset.protocols == PROTOCOLS) == spurious
    assert all(" " not in protocol for protocol in dataset.protocols)
    assert dataset.generators == (GENERATORS if spurious else ("shared",))
    assert dataset.domains == (NUM_DOMAINS if spurious else 1)


def test_checksums_of_the_papers_files_are_known_except_for_three() -> None:
    files = {f for d in DATASETS.values() if d.canet_settings for f in d.files}
    assert len(files) == 45
    unknown = {"edge.csv.gz", "node-feat.csv.gz", "elliptic_txs_features.csv"}
    assert {Path(file.path).name for file in files if not file.sha256} == unknown
    files = {file for dataset in DATASETS.values() for file in dataset.files}
    assert len({file.path for file in files}) == len(files)
    assert {len(file.sha256) for file in files if file.sha256} == {64}


@pytest.mark.parametrize("name", ["twitch", "arxiv", "elliptic", "synthetic"])
def test_data_set_and_loaded_task_agree(name: str, small_root: Path) -> None:
    task, dataset = load_task(name, small_root, data_seed=3), DATASETS[name]
    assert (task.name, task.shift, task.metric) == (name, dataset.shift, dataset.metric)
    assert (task.data_seed, task.protocol, task.inductive) == (3, "paper", False)
    assert task.features == "original"
    assert tuple(split for split in task.splits() if split.startswith("ood/")) == dataset.ood_sets
    assert task.has_environments
    assert len(task.environments) > int(task.data.environment.max())


@pytest.mark.parametrize("name", ["twitch", "arxiv", "elliptic", "synthetic"])
def test_each_feature_set_can_be_loaded(name: str, small_root: Path) -> None:
    own = load_task(name, small_root)
    assert load_task(name, small_root, features="original").digest == own.digest
    for features in DATASETS[name].features:
        task = load_task(name, small_root, features=features)
        assert task.features == features
        assert task.digest.differs_in(own.digest) == "features"


def test_an_inductive_task_hides_edges(small_root: Path) -> None:
    task = load_task("arxiv", small_root, inductive=True)
    assert task.inductive
    assert 0 < task.training_graph().num_edges < task.data.num_edges


@pytest.mark.parametrize(
    ("options", "valid"),
    [
        ({"name": "coro"}, "cora"),
        ({"name": "twitch", "protocol": "disjoint"}, "paper"),
        ({"name": "twitch", "generator": "redrawn"}, "shared"),
        ({"name": "cora", "protocol": "papr"}, "paper"),
        ({"name": "cora", "features": "structural"}, "original"),
        ({"name": "arxiv", "features": "struct"}, "structural"),
        *(
            ({"name": "synthetic", name: value}, "valid")
            for name in ("name", "protocol", "features", "generator")
            for value in (5, [], {})
        ),
    ],
)
def test_unknown_arguments_are_rejected_and_valid_ones_listed(options: Any, valid: str) -> None:
    with pytest.raises(CanetError, match=valid):
        load_task(**options)


@pytest.mark.parametrize("seed", [-1, 2**70, None, True, 1.5], ids=str)
def test_invalid_seeds_are_rejected_before_files_are_searched(seed: Any) -> None:
    with pytest.raises(InputError, match="data_seed"):
        load_task("cora", "no such folder", data_seed=seed)


def test_task_without_files_is_described_by_the_published_statistics(fresh_cache: Path) -> None:
    for name in ("cora", "twitch", "arxiv", "elliptic"):
        description = describe(name)
        assert description.state == "missing"
        assert description.statistics == DATASETS[name].statistics
        assert description.splits == {}
        assert {file.state for file in file_status(name)} == {"missing"}
    assert not fresh_cache.exists()


def test_the_splits_of_a_task_with_files_are_counted(small_root: Path) -> None:
    description = describe("elliptic", small_root)
    assert description.state == "present"
    assert description.splits["train"] == 15
    assert description.splits["left_out/steps 43-49"] == 42
    description = describe("synthetic")
    assert (description.state, description.files) == ("present", [])


def test_changed_file_is_reported_and_nothing_is_counted(fresh_cache: Path) -> None:
    path = fresh_cache / "planetoid" / "ind.cora.tx"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a pickle")
    description = describe("cora")
    assert (description.state, description.splits) == ("changed", {})
    (changed,) = (file for file in description.files if file.state != "missing")
    assert (changed.state, changed.location) == ("changed", path)


@pytest.mark.parametrize("name", DATASETS)
def test_real_files_have_the_published_statistics(
    name: str, data_root: Path, real_task: LoadTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = real_task(name)
    monkeypatch.setattr(catalog, "load_task", lambda *_: task)
    described = describe(name, data_root)
    nodes, edges, classes, features = described.statistics
    assert task.num_features == features + described.spurious
    assert task.num_nodes == nodes * described.domains
    assert task.num_classes == classes
    if name not in ("cora", "citeseer", "pubmed"):  # their papers count duplicates and self-loops
        directions = 2 if described.domains > 1 else 1
        assert task.data.num_edges == edges * described.domains * directions
    assert sum(described.splits.values()) == int((task.data.y >= 0).sum())
    assert tuple(split for split in described.splits if "ood/" in split) == DATASETS[name].ood_sets

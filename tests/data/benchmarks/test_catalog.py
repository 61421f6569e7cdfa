import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canet.data import CATALOG, describe, file_status, load_task
from canet.data.benchmarks import sources
from canet.data.benchmarks.spurious import NUM_DOMAINS, PROTOCOLS
from canet.errors import CanetError, InputError


def test_importing_the_catalogue_does_not_import_torch() -> None:
    code = "import sys, canet.data; sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_task_has_its_files_listed() -> None:
    assert list(sources.FILES) == list(CATALOG)


def test_spurious_tasks_offer_every_protocol() -> None:
    for entry in CATALOG.values():
        spurious = entry.shift == "spurious features"
        assert entry.protocols == (PROTOCOLS if spurious else ("paper",))
        assert entry.domains == (NUM_DOMAINS if spurious else 1)


@pytest.mark.parametrize("name", ["twitch", "arxiv", "elliptic", "synthetic"])
def test_entry_and_loaded_task_agree(name: str, small_root: Path) -> None:
    task = load_task(name, small_root, data_seed=3)
    assert (task.name, task.shift, task.metric) == (
        name,
        CATALOG[name].shift,
        CATALOG[name].metric,
    )
    assert (task.data_seed, task.protocol, task.inductive) == (3, "paper", False)
    assert task.has_environments
    assert len(task.environments) > int(task.data.environment.max())


def test_inductive_is_carried_by_the_task(small_root: Path) -> None:
    task = load_task("arxiv", small_root, inductive=True)
    assert task.inductive
    assert 0 < task.training_edges().shape[1] < task.data.edge_index.shape[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "coro"}, "unknown task 'coro': did you mean 'cora'"),
        ({"name": "twitch", "protocol": "disjoint"}, "valid are paper"),
        ({"name": "cora", "protocol": "papr"}, "did you mean 'paper'"),
        ({"name": "cora", "features": "structural"}, "valid are only its own"),
        ({"name": "arxiv", "features": "struct"}, "valid are structural"),
    ],
)
def test_misspelt_choices_are_refused_with_the_valid_ones(options: dict, message: str) -> None:
    with pytest.raises(CanetError, match=message):
        load_task(**options)


@pytest.mark.parametrize("name", ["name", "protocol", "features", "generator"])
@pytest.mark.parametrize("value", [5, [], {}], ids=str)
def test_what_is_no_name_is_refused_like_an_unknown_one(name: str, value: Any) -> None:
    with pytest.raises(CanetError, match=r"^unknown .*: valid are "):
        load_task(**{"name": "synthetic", name: value})


def test_numpy_integers_are_data_seeds() -> None:
    task = load_task("synthetic", data_seed=np.int64(1))
    assert type(task.data_seed) is int
    assert task.digest == load_task("synthetic", data_seed=1).digest


@pytest.mark.parametrize("seed", [-1, 2**70, None, True, 1.5], ids=str)
def test_what_is_no_seed_is_refused_before_files_are_looked_for(seed: Any) -> None:
    with pytest.raises(InputError, match=r"^data_seed is .*: give a whole number from 0 to "):
        load_task("cora", "no such folder", data_seed=seed)


def test_task_without_files_is_described_by_the_official_ones(fresh_cache: Path) -> None:
    for name in ("cora", "twitch", "arxiv", "elliptic"):
        description = describe(name)
        assert description.state == "missing"
        assert description.statistics == CATALOG[name].counts
        assert description.splits == {}
        assert {file.state for file in file_status(name)} == {"missing"}
    assert not fresh_cache.exists()


def test_task_with_files_is_counted(small_root: Path) -> None:
    description = describe("elliptic", small_root)
    assert description.state == "present"
    assert description.statistics == (441, 392, 2, 165)
    assert description.splits["train"] == 15
    assert description.splits["left_out/steps 43-49"] == 42


def test_damaged_file_is_told_and_nothing_is_counted(data_root: Path, fresh_cache: Path) -> None:
    path = fresh_cache / "planetoid" / "ind.cora.tx"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a pickle")
    description = describe("cora")
    assert description.state == "damaged"
    assert {file.state for file in description.files} == {"damaged", "missing"}
    assert next(file for file in description.files if file.state == "damaged").location == path


@pytest.mark.parametrize("name", CATALOG)
def test_counts_are_the_same_with_files_and_without(name: str, data_root: Path) -> None:
    described = describe(name, data_root)
    if described.state != "present" or not described.files:
        pytest.skip("files are missing, or none are needed")
    assert described.statistics == CATALOG[name].counts
    task = load_task(name, data_root)
    assert task.num_features == described.statistics.features + described.spurious
    assert task.num_nodes == described.statistics.nodes * described.domains


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_real_citation_graphs_have_the_published_statistics(name: str, data_root: Path) -> None:
    description = describe(name, data_root)
    assert description.state == "present"
    assert description.statistics == CATALOG[name].counts
    nodes = description.statistics.nodes
    assert sum(size for split, size in description.splits.items()) == 6 * nodes
    assert description.splits["train"] == 3 * nodes // 2


def test_task_that_needs_no_files_is_always_counted(fresh_cache: Path) -> None:
    description = describe("synthetic")
    assert description.state == "present"
    assert description.files == []
    assert description.statistics.nodes == 1500

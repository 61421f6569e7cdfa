import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from canet import defaults
from canet.data import CENTRED_PER_GRAPH, DATASETS, WITHOUT_SPURIOUS
from canet.defaults import read_settings, task_settings
from canet.errors import CanetError, ChecksumError
from canet.methods import BACKBONES, METHODS, InterventionSettings
from canet.methods.annealing import AnnealedSettings
from canet.methods.canet import CaNetSettings
from canet.paper.published import PAPER_BACKBONES
from canet.util.files import read_json, write_bytes, write_json
from canet.util.schema import CHECKSUM, pack_json
from experiments.collect_searches import collect

# The settings published by CaNet's authors. GAT ignores `propagation`: its rows have the default.
PUBLISHED = """
task      backbone  decay  tau  dropout  estimator  propagation  direction  layers  hidden  loss
cora      gcn       5e-5   1    0.2      graph      symmetric    along      2       64      multi
citeseer  gcn       5e-5   1    0.1      graph      symmetric    along      2       64      multi
pubmed    gcn       5e-5   2    0.2      graph      symmetric    along      2       64      multi
arxiv     gcn       5e-4   1    0.2      node       sum          against    2       64      multi
twitch    gcn       5e-5   3    0        graph      symmetric    along      2       64      binary
elliptic  gcn       1e-3   1    0.2      node       sum          against    3       32      binary
cora      gat       0      3    0.2      graph      symmetric    along      2       64      multi
citeseer  gat       0      3    0.2      graph      symmetric    along      2       64      multi
pubmed    gat       5e-5   1    0.2      graph      symmetric    along      2       64      multi
arxiv     gat       5e-5   2    0.2      graph      symmetric    against    2       64      multi
twitch    gat       5e-5   2    0        graph      symmetric    along      2       64      binary
elliptic  gat       5e-4   2    0.1      graph      symmetric    against    2       64      binary
"""
ROWS = [line.split() for line in PUBLISHED.strip().splitlines()[1:]]
LOSS = {"multi": "cross_entropy", "binary": "binary_cross_entropy"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_canet_starts_from_the_published_settings(row: list[str]) -> None:
    task, backbone, decay, tau, dropout, estimator, propagation, direction, *rest = row
    layers, hidden, loss = rest
    assert task_settings(task, "canet", backbone) == CaNetSettings(
        weight_decay=float(decay),
        tau=float(tau),
        dropout=float(dropout),
        estimator=estimator,
        propagation=propagation,
        direction=direction,
        num_layers=int(layers),
        hidden=int(hidden),
        loss=LOSS[loss],
        num_environments=3,
        learning_rate=0.01,
        reg_weight=1.0,
        epochs=500,
        prior="uniform",
        patience=0,
        estimator_learning_rate=None,
        shared_environment=False,
        learned_environment=True,
    )


def test_table_covers_every_task_and_every_backbone_of_the_paper() -> None:
    of_the_paper = [name for name, entry in DATASETS.items() if entry.canet_settings]
    pairs = {(task, backbone) for task in of_the_paper for backbone in PAPER_BACKBONES}
    assert {(row[0], row[1]) for row in ROWS} == pairs


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_task_without_published_settings_gets_the_defaults(backbone: str) -> None:
    assert task_settings("synthetic", "canet", backbone) == CaNetSettings()
    assert task_settings("mine", "canet", backbone) == CaNetSettings()


@pytest.mark.parametrize("task", DATASETS)
def test_methods_on_one_task_share_its_loss_and_direction(task: str) -> None:
    pairs = itertools.product(METHODS, BACKBONES)
    settings = [task_settings(task, method, backbone) for method, backbone in pairs]
    assert len({(s.loss, s.direction) for s in settings}) == 1


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty file of searched settings in place of the one in the package."""
    path = tmp_path / "searched.json"
    path.write_text("{}")
    monkeypatch.setattr(defaults, "SEARCHED", path)
    defaults._searched.cache_clear()
    yield path
    defaults._searched.cache_clear()


def best(
    task: str = "cora", method: str = "irm", backbone: str = "gcn", **settings: object
) -> dict[str, Any]:
    """The content of `best.json` after a search of three settings."""
    command = f"canet search {task} --method {method} --backbone {backbone} --trials 16"
    return {
        "task": task,
        "method": method,
        "backbone": backbone,
        "settings": {"hidden": 64, "dropout": 0.2, "learning_rate": 0.01} | settings,
        "valid": 0.915,
        "trials": 16,
        "epochs": 200,
        "features": "original",
        "command": command + (" --features structural" if task == "arxiv" else ""),
        "date": "2026-11-15",
        "hardware": "NVIDIA H200",
    }


def write_best(folder: Path, **given: Any) -> None:
    content = best(**given)
    name = f"{content['task']}-{content['method']}-{content['backbone']}"
    write_json(folder / name / "best.json", content)


def test_without_a_search_competitors_have_their_defaults_and_the_shared_settings_of_the_task(
    searched: Path,
) -> None:
    assert task_settings("cora", "erm", "gcn") == InterventionSettings()
    assert task_settings("twitch", "erm", "gat") == InterventionSettings(
        loss="binary_cross_entropy"
    )
    assert task_settings("arxiv", "erm", "gcn") == InterventionSettings(direction="against")
    elliptic = InterventionSettings(direction="against", loss="binary_cross_entropy")
    assert task_settings("elliptic", "erm", "gat") == elliptic


def test_competitors_start_from_searched_settings(searched: Path, tmp_path: Path) -> None:
    write_best(tmp_path, task="arxiv", hidden=128, penalty_weight=10.0)
    write_json(searched, collect([tmp_path]))
    found = task_settings("arxiv", "irm", "gcn")
    assert found == AnnealedSettings(hidden=128, penalty_weight=10.0, direction="against")
    assert task_settings("arxiv", "irm", "gat") == AnnealedSettings(direction="against")
    assert defaults.searched("arxiv", "irm", "gcn") == found
    assert defaults.searched("arxiv", "erm", "gcn") is None


def test_settings_are_only_those_of_a_search_on_the_same_features() -> None:
    for task in ("arxiv", "elliptic"):
        found = defaults.searched(task, "dann", "gat", "structural")
        assert found is not None
        assert task_settings(task, "dann", "gat", features="structural") == found
        plain = task_settings(task, "dann", "gat")
        assert plain == defaults.unsearched(task, "dann", "gat") != found
        assert defaults.searched_instead(task, "dann", "gat", "original") == "structural"
        published = task_settings(task, "canet", "gat")
        assert task_settings(task, "canet", "gat", features="structural") == published
        assert defaults.searched_instead(task, "canet", "gat", "original") is None


@pytest.mark.parametrize("features", ["original", WITHOUT_SPURIOUS, CENTRED_PER_GRAPH])
def test_controls_have_the_settings_of_the_original_features(features: str) -> None:
    found = task_settings("cora", "irm", "gcn", features=features)
    assert found == defaults.searched("cora", "irm", "gcn")
    assert defaults.searched_instead("cora", "irm", "gcn", features) is None


def test_canet_keeps_the_published_settings_and_searched_settings_are_separate(
    searched: Path, tmp_path: Path
) -> None:
    published = task_settings("arxiv", "canet", "gcn")
    write_best(tmp_path, task="arxiv", method="canet", hidden=128, dropout=0.2, tau=3.0)
    write_json(searched, collect([tmp_path]))
    assert task_settings("arxiv", "canet", "gcn") == published
    entry = read_json(searched)["tasks"]["arxiv"]["gcn"]["canet"]
    assert entry["settings"] == {"hidden": 128, "tau": 3.0}
    assert defaults.searched("arxiv", "canet", "gcn") == replace(published, hidden=128, tau=3.0)
    assert defaults.searched("arxiv", "canet", "gat") is None


def test_collected_entries_contain_the_changed_settings_and_the_search(tmp_path: Path) -> None:
    write_best(tmp_path, hidden=128, dropout=0.2)
    write_best(tmp_path, task="arxiv", method="erm", backbone="gat", dropout=0.5)
    content = collect([tmp_path])
    assert content["tasks"]["cora"]["gcn"]["irm"] == {
        "settings": {"hidden": 128},
        "valid": 0.915,
        "trials": 16,
        "epochs": 200,
        "features": "original",
    }
    assert content["tasks"]["arxiv"]["gat"]["erm"]["settings"] == {"dropout": 0.5}
    assert content["commands"] == [
        "canet search TASK --method METHOD --backbone BACKBONE --trials 16",
        "canet search TASK --method METHOD --backbone BACKBONE --trials 16 --features structural",
    ]
    assert (content["date"], content["hardware"]) == ("2026-11-15", "NVIDIA H200")


def test_folder_without_searches_and_two_searches_of_one_method_are_rejected(
    tmp_path: Path,
) -> None:
    with pytest.raises(CanetError):
        collect([tmp_path])
    write_best(tmp_path / "a")
    write_best(tmp_path / "b")
    with pytest.raises(CanetError, match="irm-gcn on cora"):
        collect([tmp_path])


def test_searched_settings_of_the_package_fit_their_methods() -> None:
    content = read_json(defaults.SEARCHED)
    for task, backbones in content.get("tasks", {}).items():
        for backbone, methods in backbones.items():
            for method, entry in methods.items():
                found = defaults.searched(task, method, backbone, entry["features"])
                assert found
                settings = asdict(found)
                assert entry["settings"].items() <= settings.items()
                assert {*entry} == {"settings", "valid", "trials", "epochs", "features"}


def test_settings_of_a_search_that_have_changed_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    write_bytes(path, pack_json(best(hidden=32)))
    assert read_settings(path)["hidden"] == 32
    changed = path.read_text().replace('"hidden": 32', '"hidden": 33')
    path.write_text(changed)
    with pytest.raises(ChecksumError, match=r"best\.json"):
        read_settings(path)
    content = json.loads(changed)
    del content[CHECKSUM]
    write_json(path, content)  # a file of the user has no checksum
    assert read_settings(path)["hidden"] == 33

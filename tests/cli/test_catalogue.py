"""`canet datasets`, `methods` and `backbones`."""

from dataclasses import fields
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from canet.cli.catalogue import datasets
from canet.data import describe, load_task
from canet.data.benchmarks.catalog import DATASETS, Catalogue
from canet.data.benchmarks.synthetic import Synthetic
from canet.methods import BACKBONES, Settings
from canet.models import all_methods
from tests.support.commands import Answer, Canet
from tests.support.terminal import terminal

TASKS = list(DATASETS)


def cells(answer: Answer) -> dict[str, list[str]]:
    """The rows of a printed table by their first cell."""
    assert (answer.code, answer.err) == (0, "")
    lines = [line for line in answer.out.splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    return {row[0]: row for row in rows}


def test_data_sets_are_listed_with_their_state_and_nothing_is_downloaded(
    canet: Canet, fresh_cache: Path, offline: list[str]
) -> None:
    rows = cells(canet("datasets"))
    assert list(rows) == TASKS
    assert rows["synthetic"][-1] == "none needed"
    assert rows["cora"][-1] == "missing: 6 files"
    assert rows["twitch"][-1] == "missing: 18 files"
    assert {"2,708 × 6", "spurious features", "accuracy"} <= {*rows["cora"]}
    assert not fresh_cache.exists()
    assert offline == []


def test_list_of_data_sets_as_json(canet: Canet, small_root: Path, offline: list[str]) -> None:
    wrong = small_root / "planetoid/ind.cora.tx"
    wrong.parent.mkdir()
    wrong.write_bytes(b"not the published file")
    content = canet("datasets", "--data-root", small_root, "--json").content
    assert list(content) == TASKS
    states = {name: task["state"] for name, task in content.items()}
    expected = {
        **dict.fromkeys(("synthetic", "twitch", "arxiv", "elliptic"), "present"),
        **dict.fromkeys(("citeseer", "pubmed"), "missing"),
        "cora": "changed",
    }
    assert states | expected == states
    assert content["elliptic"]["statistics"]["features"] == 165
    assert content["twitch"]["splits"]["ood/ES"] == 20
    files = {file["path"]: file for file in content["cora"]["files"]}
    assert files["planetoid/ind.cora.tx"]["state"] == "changed"
    assert files["planetoid/ind.cora.tx"]["location"] == str(wrong)
    assert files["planetoid/ind.cora.ty"]["state"] == "missing"
    assert offline == []


def test_the_list_on_a_terminal_fits_eighty_columns_without_a_torn_word(fresh_cache: Path) -> None:
    tasks = [describe(name) for name in TASKS]
    with terminal() as screen:
        datasets()
    assert all(len(line) <= 80 for line in screen.lines())
    assert "…" not in screen.getvalue()
    for task in tasks:
        (line,) = (line for line in screen.lines() if line.startswith(f"│ {task.name} "))
        assert f" {task.statistics.nodes:,} " in line


def test_one_data_set_shows_its_splits_and_files(canet: Canet, small_root: Path) -> None:
    answer = canet("datasets", "elliptic", "--data-root", small_root)
    assert "203,769 nodes, 234,355 edges" in answer.out
    rows = cells(answer)
    assert {"train", "valid", "test_id", "ood/steps 11-14", "left_out/steps 43-49"} <= {*rows}
    assert rows["elliptic/raw/elliptic_txs_classes.csv"][1] == "present"


class Villages(Synthetic):
    name = "villages"


def test_data_sets_of_other_packages_are_listed(
    canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("villages", f"{__name__}:Villages", "canet.datasets")
    monkeypatch.setattr("canet.util.plugins._all_entry_points", lambda: EntryPoints([entry]))
    monkeypatch.setattr(DATASETS, "data", Catalogue({}).data)
    assert list(canet("datasets", "--json").content) == ["villages"]
    assert load_task("villages").name == "villages"


def test_methods_are_listed_with_their_settings_and_papers(canet: Canet) -> None:
    out, content = canet("methods").out, canet("methods", "--json").content
    assert list(content) == list(all_methods())
    for method in all_methods().values():
        assert method.summary in out
        assert method.paper in out
        own = {f.name for f in fields(method.settings_type)} - {f.name for f in fields(Settings)}
        assert all(f"{name} = " in out for name in own)
        one = canet("methods", method.name).out
        assert all(declared.name in one for declared in fields(method.settings_type))
    tau = content["canet"]["settings"]["tau"]
    assert (tau["default"], tau["search"]) == (1.0, [1, 3, 5, 10])
    assert content["erm"]["needs_environments"] is False


def test_backbones_are_listed_with_what_they_are(canet: Canet) -> None:
    out, content = canet("backbones").out, canet("backbones", "--json").content
    assert list(content) == list(BACKBONES)
    for backbone in BACKBONES.values():
        assert backbone.summary in out
        assert content[backbone.name] == {"label": backbone.label, "summary": backbone.summary}

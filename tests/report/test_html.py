"""The report page: self-contained, escaped and complete."""

import re
import time
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from canet.errors import InputWarning
from canet.paper.paper_report import write_report
from canet.store import RunFolder
from canet.store.run_folder import CONFIG, RESULT
from canet.util.files import write_json
from tests.support.commands import call
from tests.support.finished import make_config, write_run
from tests.support.reproduction import Maker, spoil
from tests.support.searches import SearchCaNet


@pytest.fixture
def page(reproduction: Path) -> str:
    """The report of a made-up reproduction."""
    return (reproduction / "report.html").read_text(encoding="utf-8")


def report(root: Path) -> str:
    write_report(root, root / "report.html")
    return (root / "report.html").read_text(encoding="utf-8")


def headline(page: str) -> str:
    found = re.search("<h1>(.*)</h1>", page)
    assert found
    return found[1]


def part(page: str, name: str) -> str:
    """The section with this id."""
    return page.partition(f'<section id="{name}">')[2].partition("</section>")[0]


class Addresses(HTMLParser):
    """Collects what a page links to or loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.found += [values[name] or "" for name in ("href", "src", "srcset") if name in values]
        if values.get("id"):
            self.ids.add(values["id"] or "")


def test_the_page_needs_no_other_file_and_all_links_have_targets(page: str) -> None:
    addresses = Addresses()
    addresses.feed(page)
    assert all(address.startswith(("#", "data:")) for address in addresses.found)
    inner = {address[1:] for address in addresses.found if address.startswith("#")}
    assert inner
    assert inner <= addresses.ids
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_everything_of_a_reproduction_is_on_the_page(page: str) -> None:
    assert headline(page) == "Best under shift in 10 comparisons: CaNet in 10"
    for text in (
        *("Cora, disjoint", "Arxiv, structural", "Elliptic, structural", "Twitch"),
        *("disjoint protocol", "structural features", "best validation", "paper 96.12 ± 1.04"),
        *("ERM, without the spurious columns", "num_environments = 5"),
        *("NVIDIA H200", "torch 2.11.0", "Controls are not ranked"),
        *("2.31", "alignment with the true environments 0.42", "Elliptic: gcn", "1 job failed."),
        *("cora eerm-gcn, seed 3", "not in the paper", "light-dark(#"),
    ):
        assert text in page


def test_notes_are_shown_where_they_apply(search_canet: SearchCaNet, tmp_path: Path) -> None:
    search_canet("cora", hidden=128)
    findings = {"num_columns": 20, "shifted_columns": [7, 3], "share": [0.9, 0.5]}
    config = make_config(method="canet", interventions="inferred", epochs=40)
    write_run(tmp_path, config, {"ood/far": 0.7, "test_id": 0.9}, findings=findings)
    Maker(tmp_path).run(make_config("cora", "erm"))
    for settings in ({}, {"hidden": 128}):
        Maker(tmp_path).run(make_config("cora", "canet", **settings), 0.9)
    page = report(tmp_path)
    for text in ("7 (90 %), 3 (50 %)", "40 instead of 500", "CaNet, searched is not ranked"):
        assert text in page


def test_runs_that_cannot_be_read_are_named_on_the_page(page: str, tmp_path: Path) -> None:
    assert part(page, "left-out") == ""
    Maker(tmp_path).run(make_config(method="erm"))
    folder = Maker(tmp_path / "<b>").run(make_config(method="irm"))
    write_json(folder / RESULT, [])
    with pytest.warns(InputWarning, match="left out a run"):
        text = report(tmp_path)
    listed = part(text, "left-out")
    assert f"&lt;b&gt;/{folder.parent.name}/seed-0" in listed
    assert "<b>" not in listed
    assert "IRM" not in text.partition('<section id="left-out">')[0]


def test_a_tie_is_not_counted_as_best(tmp_path: Path) -> None:
    comparisons = {
        "synthetic": {"canet": 0.8, "erm": 0.80001, "irm": 0.2},
        "cora": {"canet": 0.7, "erm": 0.8},
    }
    for task, scores in comparisons.items():
        for method, score in scores.items():
            write_run(tmp_path, make_config(task, method), {"ood/far": score, "test_id": 0.9})
    page = report(tmp_path)
    counts = "ERM in 1; CaNet and ERM tied in 1"
    assert headline(page) == f"Best under shift in 2 comparisons: {counts}"
    assert part(page, "overview").count('class="best"') == 3
    assert "in 0 of 2 comparisons and unknown in 1 with single runs. Never best: IRM." in page


def test_texts_from_files_are_escaped(page: str, tmp_path: Path) -> None:
    assert "MemoryError: &lt;no room&gt;" in page
    assert "Table 1: &lt;accuracy&gt; under shift" in page
    assert "<no room>" not in page
    hostile = '"><script>alert(1)</script>'
    place = Maker(tmp_path).run(make_config())
    config = replace(make_config(), protocol=hostile, method=hostile)
    folder = RunFolder(place.rename(tmp_path / "mine"))
    folder.add_json(CONFIG, folder.read_json(CONFIG) | {"config": asdict(config)})
    assert "<script>alert" not in report(tmp_path)


def test_scores_that_are_not_numbers_are_dashes(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    spoil(maker.run(make_config(method="erm")), "ood/domain 5")
    maker.run(make_config(method="irm"))
    page = report(tmp_path)
    assert 'data-value="">–' in page
    assert not re.search(r"\bnan\b", page.partition("<body>")[2].partition("<script>")[0])


def test_a_page_of_many_runs_is_small_and_fast(tmp_path: Path) -> None:
    Maker(tmp_path / "runs", epochs=500).runs(["cora"], draws=3, seeds=4)
    begin = time.perf_counter()
    assert len(report(tmp_path)) < 250_000
    assert time.perf_counter() - begin < 20


@pytest.mark.parametrize("option", [(), ("--out", "new/page.html")])
def test_the_command_writes_the_page_and_says_where(
    option: tuple[str, ...], tmp_path: Path
) -> None:
    Maker(tmp_path / "runs").run(make_config())
    answer = call(tmp_path, "report", "runs", *option)
    target = option[1] if option else "runs/report.html"
    assert (answer.code, target in answer.out) == (0, True)
    assert (tmp_path / target).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_folder_without_runs_or_a_target_that_cannot_be_written_is_one_line(
    tmp_path: Path,
) -> None:
    Maker(tmp_path / "runs").run(make_config())
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for arguments in (("runs", "-o", "file/page.html"), ("empty",)):
        assert call(tmp_path, "report", *arguments).complaint

import os
import re
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from canet import cli
from canet.errors import CanetError, InputWarning
from canet.paper.paper_report import write_report
from canet.report.html import duration
from canet.store.run_folder import CONFIG, RESULT
from canet.util.files import read_json, write_json
from tests.finished import make_config, write_run
from tests.report.reproduction import Maker, spoil
from tests.searches import SearchCaNet


@pytest.fixture
def page(reproduction: Path) -> str:
    """The report of a made-up reproduction."""
    return (reproduction / "report.html").read_text(encoding="utf-8")


def headline(page: str) -> str:
    found = re.search("<h1>(.*)</h1>", page)
    assert found
    return found[1]


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


def test_the_page_needs_no_other_file_and_every_link_has_its_end(page: str) -> None:
    addresses = Addresses()
    addresses.feed(page)
    assert all(address.startswith(("#", "data:")) for address in addresses.found)
    inner = {address[1:] for address in addresses.found if address.startswith("#")}
    assert inner
    assert inner <= addresses.ids
    assert "@import" not in page
    assert "url(" not in page


def test_the_page_begins_with_who_is_best_how_often_and_what_leads_are_worth(page: str) -> None:
    assert headline(page) == "Best under shift in 10 comparisons: CaNet in 10"
    assert "The lead is larger than the spread in 10 of 10 comparisons (CaNet in 10)." in page
    assert "Never best: ERM, IRM and Mixup." in page


def report(root: Path) -> str:
    write_report(root, root / "report.html")
    return (root / "report.html").read_text(encoding="utf-8")


def test_single_runs_are_told_without_a_spread(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    maker.run(make_config(method="erm"), 50.0)
    maker.run(make_config(method="irm"), 90.0)
    page = report(tmp_path)
    text = r"IRM is best under shift, by [34]\d\.\d points: single runs"
    assert re.fullmatch(text, headline(page))
    assert "accuracy in %, one run each, epoch by best validation" in page
    assert "±" not in page


def test_a_tie_is_shown_as_a_tie(tmp_path: Path) -> None:
    for method in ("erm", "canet"):
        write_run(tmp_path, make_config(method=method), {"ood/far": 70.0, "test_id": 90.0})
    page = report(tmp_path)
    assert headline(page) == "CaNet and ERM are tied under shift"
    assert "<strong>CaNet and ERM 70.00</strong><br><small>tied" in page
    assert page.count('<span class="dot of-canet best" ') == 1
    assert page.count('<span class="dot of-erm best" ') == 1


def test_damaged_runs_are_named_on_the_page_and_nothing_of_the_kind_without_any(
    page: str, tmp_path: Path
) -> None:
    assert "left-out" not in page.partition("</style>")[2].partition("<script>")[0]
    maker = Maker(tmp_path)
    maker.run(make_config(method="erm"))
    damaged = Maker(tmp_path / "<b>").run(make_config(method="irm"))
    write_json(damaged / RESULT, [])
    with pytest.warns(InputWarning, match="left out a run"):
        text = report(tmp_path)
    assert '<a class="failed" href="#left-out">1 damaged run left out.</a>' in text
    listed = text.partition('<section id="left-out">')[2].partition("</section>")[0]
    assert f"&lt;b&gt;/{damaged.parent.name}/seed-0" in listed
    assert "<b>" not in listed
    assert "IRM" not in text.partition('<section id="left-out">')[0]


def test_a_name_that_is_no_text_is_shown_in_printable_characters(tmp_path: Path) -> None:
    Maker(tmp_path).run(make_config(method="erm"))
    damaged = Maker(tmp_path / os.fsdecode(b"a\xff")).run(make_config(method="irm"))
    write_json(damaged / RESULT, [])
    with pytest.warns(InputWarning, match="left out a run"):
        text = report(tmp_path)
    assert "a\\udcff/" in text.partition('<section id="left-out">')[2].partition("</section>")[0]


def test_damaged_jobs_tables_and_figures_are_named_on_the_page(tmp_path: Path) -> None:
    Maker(tmp_path).run(make_config(method="erm"))
    for folder in ("b", "tables", "figures"):
        (tmp_path / folder).mkdir()
    write_json(tmp_path / "b" / "failed.json", {"lines": ["boom"]})
    (tmp_path / "b" / CONFIG).write_text('{"task":')
    (tmp_path / "tables" / "<x>.json").write_text('{"rows":')
    (tmp_path / "figures" / "y.svg").symlink_to("nowhere")
    with pytest.warns(InputWarning) as caught:
        text = report(tmp_path)
    assert [str(warning.message).partition("'")[0] for warning in caught] == [
        "left out a file: "
    ] * 2
    assert '<a class="failed" href="#damaged-files">2 damaged files left out.</a>' in text
    listed = text.partition('<section id="damaged-files">')[2].partition("</section>")[0]
    assert "tables/&lt;x&gt;.json" in listed
    assert "figures/y.svg" in listed
    failed = text.partition('<section id="failed">')[2].partition("</section>")[0]
    assert "<summary>a job whose config.json is damaged (b)</summary><pre>boom</pre>" in failed


@pytest.mark.parametrize(
    "settings", [{"epochs": [1]}, {"epochs": "1"}, {"hidden": {}}], ids=["list", "word", "object"]
)
def test_a_run_whose_settings_are_none_is_left_out(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    Maker(tmp_path).run(make_config(method="erm"))
    folder = Maker(tmp_path).run(make_config(method="irm"))
    content = read_json(folder / CONFIG)
    write_json(folder / CONFIG, content | {"settings": content["settings"] | settings})
    with pytest.warns(InputWarning, match="left out a run"):
        assert "1 damaged run left out." in report(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.3, "less than a second"),
        (1.2, "1 second"),
        (45.0, "45 seconds"),
        (1500.0, "25 minutes"),
        (7200.0, "2.0 hours"),
    ],
)
def test_time_is_told_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_page_tells_how_long_training_took(page: str) -> None:
    assert re.search(r"Training took \d+ seconds in all\.", page)


def test_a_lonely_method_is_best_of_nothing(tmp_path: Path) -> None:
    Maker(tmp_path).run(make_config())
    assert headline(report(tmp_path)) == "Scores under shift"


def test_lines_that_are_not_looked_at_are_grey_and_the_note_says_so(page: str) -> None:
    assert '<g class="line of-mixup quiet"' in page
    assert '<g class="line of-canet"' in page
    assert "The band is one standard deviation, drawn for the lines in colour." in page
    assert "In colour are ERM, CaNet and the best under shift" in page


def test_everything_of_a_reproduction_is_on_the_page(page: str) -> None:
    for text in (
        *("Cora, disjoint", "Arxiv, structural", "Elliptic, structural", "Twitch"),
        *("protocol disjoint", "structural features", "best validation", "paper 96.12 ± 1.04"),
        *("ERM, blind", "num_environments = 5", "NVIDIA H200", "torch 2.11.0"),
        *("2.31", "match with the true ones 0.42", "Elliptic: gcn", "1 job failed."),
        *("cora eerm-gcn, seed 3", "paper: CaNet, 3.4 above Mixup", "not in the paper"),
    ):
        assert text in page


def test_searched_canet_is_a_ring_that_is_not_named_the_best(
    search_canet: SearchCaNet, tmp_path: Path
) -> None:
    search_canet("cora", hidden=128)
    maker = Maker(tmp_path)
    maker.run(make_config("cora", "erm"), 50.0)
    maker.run(make_config("cora", "canet"), 70.0)
    maker.run(make_config("cora", "canet", hidden=128), 90.0)
    write_report(tmp_path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert headline(page).startswith("CaNet is best under shift, by ")
    assert '<span class="dot of-searched" ' in page
    assert '<span class="dot of-canet best" ' in page
    assert "a ring is CaNet with searched settings" in page
    assert "CaNet-GCN, searched, K = 3" in page


def test_texts_from_files_are_escaped(page: str) -> None:
    assert "MemoryError: &lt;no room&gt;" in page
    assert "Table 1: &lt;accuracy&gt; under shift" in page
    assert "<no room>" not in page


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    hostile = '"><script>alert(1)</script>'
    place = Maker(tmp_path).run(make_config())
    config = replace(make_config(), protocol=hostile, method=hostile)
    write_json(place / CONFIG, config.__dict__)
    write_report(tmp_path, tmp_path / "report.html")
    assert "<script>alert" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_scores_that_are_not_numbers_are_dashes(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    spoil(maker.run(make_config(method="erm")), "ood/domain 5")
    maker.run(make_config(method="irm"))
    write_report(tmp_path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'data-value="">–' in page
    assert not re.search(r"\bnan\b", page.partition("<body>")[2].partition("<script>")[0])


def test_the_same_runs_give_the_same_page(page: str, reproduction: Path, tmp_path: Path) -> None:
    write_report(reproduction, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page


def test_many_runs_make_a_small_page_soon(tmp_path: Path) -> None:
    Maker(tmp_path / "runs", epochs=500).runs(["cora"], draws=3, seeds=4)
    begin = time.perf_counter()
    write_report(tmp_path, tmp_path / "report.html")
    assert time.perf_counter() - begin < 20
    assert (tmp_path / "report.html").stat().st_size < 250_000


def test_unfinished_runs_alone_are_refused(tmp_path: Path) -> None:
    (Maker(tmp_path).run(make_config()) / "done").unlink()
    with pytest.raises(CanetError, match="no finished run"):
        write_report(tmp_path, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_result_that_lacks_something_is_told_in_one_line(tmp_path: Path) -> None:
    place = Maker(tmp_path).run(make_config())
    result = read_json(place / RESULT)
    del result["device"]
    write_json(place / RESULT, result)
    with pytest.raises(CanetError, match="lacks device"):
        write_report(tmp_path, tmp_path / "report.html")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["canet", "report", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("option", [None, "-o", "--out"])
def test_the_command_writes_the_page_and_says_where(
    option: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Maker(tmp_path / "runs").run(make_config())
    target = tmp_path / "new" / "page.html" if option else tmp_path / "runs" / "report.html"
    assert command(monkeypatch, tmp_path / "runs", *([option, target] if option else [])) == 0
    assert capsys.readouterr() == (f"Report: {target}\n", "")
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_target_that_cannot_be_written_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Maker(tmp_path / "runs").run(make_config())
    (tmp_path / "file").touch()
    assert command(monkeypatch, tmp_path / "runs", "-o", tmp_path / "file" / "page.html") == 2
    error = capsys.readouterr().err
    assert error.startswith("canet: cannot write ")
    assert error.count("\n") == 1


def test_a_folder_without_runs_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, tmp_path) == 2
    assert capsys.readouterr().err.count("\n") == 1

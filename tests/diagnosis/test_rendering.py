from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from canet.diagnosis import Diagnosis, diagnose
from canet.diagnosis.diagnosis import SECTIONS
from canet.diagnosis.rendering import number, p_value, render_page, render_text, write_page
from canet.errors import CanetError
from tests.report.browser import Browser, find_chromium, running

from .planted import among_others, planted, random_graph, sign_of

PHONE, DESKTOP = 390, 1200
OPEN_ALL = "document.querySelectorAll('details').forEach(part => part.open = true)"
EVIL = '<img src=x onerror="alert(1)">'


class Parts(HTMLParser):
    """Collects elements, addresses and ids of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.elements.add(tag)
        self.addresses += [values[name] or "" for name in ("href", "src") if name in values]
        if values.get("id"):
            self.ids.add(values["id"] or "")


@pytest.mark.parametrize("name", ["complete", "unlabelled", "new_alone", "training_alone"])
def test_every_kind_of_diagnosis_has_a_page_that_stands_alone(
    name: str, request: pytest.FixtureRequest
) -> None:
    page = render_page(request.getfixturevalue(name))
    parts = Parts(page)
    assert all(address.startswith(("#", "data:")) for address in parts.addresses)
    inner = {address[1:] for address in parts.addresses if address.startswith("#")}
    assert inner <= parts.ids
    assert parts.elements.isdisjoint({"script", "link rel=stylesheet", "iframe", "form"})
    assert "nan" not in page.split("</style>")[1].lower().replace("canet", "")
    assert "None" not in page


def test_the_answer_comes_before_pictures_and_these_before_tables(complete: Diagnosis) -> None:
    page = render_page(complete)
    places = [page.index(words) for words in ("<h1>It relies", 'class="answer"', "<svg", "<table")]
    assert places == sorted(places)


def sections_of(found: Diagnosis) -> set[str]:
    return set(re.findall('<section id="(\\w+)"', render_page(found)))


def test_parts_that_are_not_known_have_no_section(
    complete: Diagnosis, training_alone: Diagnosis
) -> None:
    assert sections_of(complete) == {"overview", *SECTIONS}
    assert sections_of(training_alone) == {"overview", "reliance", "confidence"}


def test_columns_that_move_between_groups_have_bars_and_a_table(
    complete: Diagnosis, training_alone: Diagnosis
) -> None:
    section = (
        render_page(among_others(complete))
        .split('<section id="between_groups">')[1]
        .split("</section>")[0]
    )
    assert section.count('class="row"') == 6
    assert section.count('<tr><th scope="row">') == 8
    assert section.count("of-warn") == 2
    assert "width:80.0%" in section
    assert "#between_groups" not in render_page(training_alone)


def evil() -> Diagnosis:
    """Blocks, classes and node ids with markup in their names."""
    data = random_graph()
    model = planted(sign_of(3), data)
    found = diagnose(model, data, random_graph(seed=1), blocks={EVIL: [3]}, repeats=1)
    return replace(found, model=replace(found.model, method=EVIL, classes=[EVIL, "b"]))


def test_markup_in_names_is_text() -> None:
    page = render_page(evil())
    assert EVIL not in page
    assert "&lt;img src=x" in page


def test_a_file_that_cannot_be_written_is_an_error(complete: Diagnosis, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CanetError, match="page"):
        write_page(complete, tmp_path / "file" / "page.html")


def test_numbers_are_short() -> None:
    shown = [p_value(value) for value in (1e-9, 0.0312, float("nan"))]
    assert shown == ["< 0.001", "0.031", "–"]
    assert [number(-0.001, 2), number(-1.5, 1)] == ["0.00", "−1.5"]


@pytest.mark.parametrize("name", ["complete", "unlabelled", "new_alone", "training_alone"])
def test_every_kind_of_diagnosis_fits_on_one_screen(
    name: str, request: pytest.FixtureRequest
) -> None:
    lines = render_text(request.getfixturevalue(name)).splitlines()
    assert len(lines) <= 52
    assert max(map(len, lines)) <= 100
    assert all("None" not in line and "nan" not in line for line in lines)


def test_the_screen_has_what_is_known(
    complete: Diagnosis, new_alone: Diagnosis, training_alone: Diagnosis
) -> None:
    text = render_text(complete)
    for words in ("200 nodes", "training: flips", "new: flips", "column 3", "η²", "Layer 1"):
        assert words in text
    assert "training: flips" not in render_text(new_alone)
    for words in ("new: flips", "η²", "Layer 1", "Expect"):
        assert words not in render_text(training_alone)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    binary = find_chromium()
    if binary is None:
        pytest.skip("no chromium here")
    with running(binary, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_nothing_overflows_and_nothing_is_asked_of_the_network(
    browser: Browser, complete: Diagnosis, tmp_path: Path, width: int
) -> None:
    page = tmp_path / "page.html"
    write_page(complete, page)
    page.write_text(page.read_text().replace("ignored", "verylongname" * 12))
    browser.resize(width)
    browser.open(page)
    browser.run(OPEN_ALL)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.complaints == []
    asked = {url for url in browser.requests if not url.startswith(("data:", "file:", "about:"))}
    assert asked == set()
    sizes = browser.run(
        "[...document.querySelectorAll('.chart svg, .track, .layer dd')]"
        ".map(one => one.getBoundingClientRect()).map(box => [box.width, box.height])"
    )
    assert len(sizes) > 10
    assert all(wide > 30 and high > 5 for wide, high in sizes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_in_text_and_pictures(
    browser: Browser, complete: Diagnosis, tmp_path: Path, scheme: str
) -> None:
    write_page(complete, tmp_path / "page.html")
    browser.prefer(scheme)
    browser.open(tmp_path / "page.html")
    brightness = "c => c.match(/[\\d.]+/g).slice(0, 3).reduce((s, p) => s + Number(p), 0) / 3"
    behind = browser.run(f"({brightness})(getComputedStyle(document.body).backgroundColor)")
    label = browser.run(
        f"({brightness})(getComputedStyle(document.querySelector('.chart svg text')).fill)"
    )
    assert (behind > 128) == (scheme == "light")
    assert abs(behind - label) > 120


def test_markup_in_names_does_nothing(browser: Browser, tmp_path: Path) -> None:
    write_page(evil(), tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    assert browser.run("document.querySelectorAll('img').length") == 0

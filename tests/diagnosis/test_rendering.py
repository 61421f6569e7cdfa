from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from canet.diagnosis import Diagnosis, diagnose
from canet.diagnosis.charts import risk_map
from canet.diagnosis.diagnosis import SECTIONS
from canet.diagnosis.rendering import number, p_value
from tests.support.browser import Browser, find_chromium, running
from tests.support.planted import planted, random_graph, sign_of

PHONE, DESKTOP = 390, 1200
OPEN_ALL = "document.querySelectorAll('details').forEach(part => part.open = true)"
EVIL = '<img src=x onerror="alert(1)">'


@pytest.mark.parametrize("name", ["complete", "unlabelled", "new_alone", "training_alone"])
def test_text_is_short_and_the_page_is_self_contained(
    name: str, request: pytest.FixtureRequest
) -> None:
    found = request.getfixturevalue(name)
    lines = str(found).splitlines()
    assert len(lines) <= 66
    assert max(map(len, lines)) <= 100
    assert all("None" not in line and "nan" not in line for line in lines)
    page = found.page()
    addresses = re.findall(r'\s(?:xlink:)?(?:href|src)="([^"]*)"', page)
    assert all(address.startswith(("#", "data:")) for address in addresses)
    inner = {address[1:] for address in addresses if address.startswith("#")}
    assert inner <= set(re.findall(r'\sid="([^"]*)"', page))
    assert not re.search("<(script|iframe|form)", page)
    assert "nan" not in page.split("</style>")[1].lower().replace("canet", "")
    assert "None" not in page


def sections_of(found: Diagnosis) -> set[str]:
    return set(re.findall('<section id="(\\w+)"', found.page()))


def test_a_part_without_result_has_no_section(
    complete: Diagnosis, training_alone: Diagnosis
) -> None:
    assert sections_of(complete) >= {"overview", "expected", "reliance", "shift", "environments"}
    for found in (complete, training_alone):
        known = {name for name in SECTIONS if getattr(found, name)}
        assert sections_of(found) == {"overview", *known}
    assert not {"expected", "shift"} & sections_of(training_alone)


def evil() -> Diagnosis:
    """Blocks, classes and node ids with markup in their names."""
    data = random_graph()
    model = planted(sign_of(3), data)
    found = diagnose(model, data, random_graph(seed=1), blocks={EVIL: [3]}, repeats=1)
    return replace(found, model=replace(found.model, method=EVIL, classes=[EVIL, "b"]))


def test_markup_in_names_is_text() -> None:
    page = evil().page()
    assert EVIL not in page
    assert "&lt;img src=x" in page


def test_numbers_are_short() -> None:
    shown = [p_value(value) for value in (1e-9, 0.0312, float("nan"))]
    assert shown == ["< 0.001", "0.031", "–"]
    assert [number(-0.001, 2), number(-1.5, 1)] == ["0.00", "−1.5"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    binary = find_chromium()
    if binary is None:
        pytest.skip("no chromium here")
    with running(binary, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_page_does_not_overflow_or_use_the_network(
    browser: Browser, complete: Diagnosis, tmp_path: Path, width: int
) -> None:
    page = tmp_path / "page.html"
    complete.save(page)
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
    complete.save(tmp_path / "page.html")
    browser.prefer(scheme)
    browser.open(tmp_path / "page.html")
    brightness = "c => c.match(/[\\d.]+/g).slice(0, 3).reduce((s, p) => s + Number(p), 0) / 3"
    behind = browser.run(f"({brightness})(getComputedStyle(document.body).backgroundColor)")
    label = browser.run(
        f"({brightness})(getComputedStyle(document.querySelector('.chart svg text')).fill)"
    )
    assert (behind > 128) == (scheme == "light")
    assert abs(behind - label) > 120


def test_the_block_that_matters_most_has_a_label_that_covers_no_dot(complete: Diagnosis) -> None:
    main, shift = complete.main_reliance, complete.shift
    assert shift is not None
    top, block = main.features[0], shift.blocks[0]
    names = [f"block {i} of many columns" for i in range(12)]
    # The most important block has not shifted, and other blocks with little shift are near it.
    flips = [top.flip_rate.value - 0.03 * i for i in range(12)]
    estimates = [replace(top.flip_rate, value=value) for value in flips]
    features = [replace(top, name=n, flip_rate=e) for n, e in zip(names, estimates, strict=True)]
    blocks = [replace(block, name=name, effect=0.01 * i) for i, name in enumerate(names)]
    reliance, crowded = replace(main, features=features), replace(shift, blocks=blocks)
    assert names[0] in risk_map(reliance, crowded, [])

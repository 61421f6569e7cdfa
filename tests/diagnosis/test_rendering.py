import re
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import canet
from canet.diagnosis import Diagnosis, diagnose
from canet.diagnosis.diagnosis import STUDY
from tests.support.browser import run_in
from tests.support.planted import planted, random_graph, sign_of

EVIL = '<img src=x onerror="alert(1)">'


@pytest.mark.parametrize("name", ["complete", "unlabelled", "new_alone", "training_alone"])
def test_text_is_short_and_the_page_is_self_contained(
    name: str, request: pytest.FixtureRequest
) -> None:
    found = request.getfixturevalue(name)
    lines = str(found).splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    assert all("None" not in line and "nan" not in line for line in lines)
    page = found.page()
    addresses = re.findall(r'\s(?:xlink:)?(?:href|src)="([^"]*)"', page)
    assert all(address.startswith(("#", "data:")) or address == STUDY for address in addresses)
    inner = {address[1:] for address in addresses if address.startswith("#")}
    assert inner <= set(re.findall(r'\sid="([^"]*)"', page))
    assert not re.search("<(script|iframe|form)", page)
    assert "nan" not in page.split("</style>")[1].lower().replace("canet", "")
    assert "None" not in page


def test_a_text_does_not_import_matplotlib(
    complete: Diagnosis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canet, "diagnosis", canet.diagnosis)  # restore it after the import below
    for name in [*sys.modules]:
        if name.startswith(("canet.diagnosis", "canet.report", "matplotlib")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    rendering = import_module("canet.diagnosis.rendering")
    text = rendering.render("page.txt.jinja", found=complete, sections=complete.sections)
    assert text == str(complete)


def sections_of(found: Diagnosis) -> set[str]:
    return set(re.findall('<section id="(\\w+)"', found.page()))


def test_a_part_without_result_has_no_section(
    complete: Diagnosis, training_alone: Diagnosis
) -> None:
    shown, of_training = sections_of(complete), sections_of(training_alone)
    assert shown == set(complete.sections) - {"expected"}
    assert of_training == set(training_alone.sections) - {"expected"}
    assert {"reliance", "shift", "concept", "environments"} <= shown
    assert "shift" not in of_training


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


@pytest.mark.parametrize(
    ("width", "dark"), [pytest.param(390, False, marks=pytest.mark.slow), (1200, True)]
)
def test_the_page_does_not_overflow_and_its_colours_follow_the_system(
    complete: Diagnosis, tmp_path: Path, width: int, dark: bool
) -> None:
    page = complete.page().replace("ignored", "verylongname" * 12)
    script = """
    document.querySelectorAll("details").forEach((part) => { part.open = true; });
    const boxes = [...document.querySelectorAll(".chart svg, table")];
    const brightness = (colour) => colour.match(/[\\d.]+/g).slice(0, 3)
      .reduce((sum, part) => sum + Number(part), 0) / 3;
    const style = (one) => window.getComputedStyle(one);
    return [
      document.documentElement.scrollWidth,
      boxes.map((one) => one.getBoundingClientRect()).map((box) => Math.min(box.width, box.height)),
      brightness(style(document.body).backgroundColor),
      brightness(style(document.querySelector(".chart svg text")).fill),
    ];"""
    ((overflow, sizes, behind, label),) = run_in(
        script, page, folder=tmp_path, width=width, dark=dark
    )
    assert overflow <= width
    assert len(sizes) >= 10
    assert min(sizes) > 5
    assert (behind < 128) == dark
    assert abs(behind - label) > 120

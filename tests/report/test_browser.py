"""The page as headless Chromium shows it."""

from pathlib import Path

import pytest

from tests.support.browser import run_in

PHONE, DESKTOP = 390, 1280
OPEN_ALL = "document.querySelectorAll('details').forEach((part) => { part.open = true; });"
BRIGHTNESS = (
    "const brightness = () => window.getComputedStyle(document.body).backgroundColor"
    ".match(/[\\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3;"
)


@pytest.fixture
def page(reproduction: Path) -> str:
    return (reproduction / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_every_figure_is_visible_and_nothing_overflows_sideways(
    width: int, page: str, tmp_path: Path
) -> None:
    script = f"""{OPEN_ALL}
    const boxes = [...document.querySelectorAll("figure img, figure svg, table")];
    return [
      document.documentElement.scrollWidth,
      boxes.map((one) => one.getBoundingClientRect()).map((box) => Math.min(box.width, box.height)),
      window.performance.getEntriesByType("resource").map((one) => one.name),
    ];"""
    ((overflow, sizes, requests),) = run_in(script, page, folder=tmp_path, width=width)
    assert overflow <= width
    assert len(sizes) > 20
    assert min(sizes) > 0
    assert all(request.startswith("data:") for request in requests)


def test_a_click_sorts_and_a_second_click_reverses_the_order(page: str, tmp_path: Path) -> None:
    script = """
    const table = document.querySelectorAll("table.sortable")[1];
    const click = (column) => {
      const head = table.tHead.rows[0].cells[column];
      head.querySelector("button").click();
      const rows = [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.value);
      return [head.getAttribute("aria-sort"), rows];
    };
    return [click(2), click(2), click(0)];"""
    ((down, up, names),) = run_in(script, page, folder=tmp_path)
    scores = [float(value) for value in down[1]]
    assert down[0] == "descending"
    assert scores == sorted(scores, reverse=True)
    assert (up[0], [float(value) for value in up[1]]) == ("ascending", scores[::-1])
    assert names == ["ascending", sorted(names[1], key=str.lower)]


@pytest.mark.parametrize("dark", [pytest.param(False, marks=pytest.mark.slow), True])
def test_colours_follow_the_system_until_the_button_changes_them(
    dark: bool, page: str, tmp_path: Path
) -> None:
    script = f"""{BRIGHTNESS}
    const before = brightness();
    document.querySelector(".theme").click();
    return [before, brightness()];"""
    ((before, after),) = run_in(script, page, folder=tmp_path, dark=dark)
    assert (before < 128, after > 128) == (dark, dark)

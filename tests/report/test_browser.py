"""The page as headless Chromium shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, find_chromium, running

PHONE, DESKTOP = 390, 1280
FIRST_TABLE = "document.querySelector('table.sortable')"
OPEN_ALL = "document.querySelectorAll('details').forEach(part => part.open = true)"


@pytest.fixture
def page(reproduction: Path) -> Path:
    return reproduction / "report.html"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    binary = find_chromium()
    if binary is None:
        pytest.skip("no chromium here")
    with running(binary, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser, page: Path) -> Browser:
    """The page freshly opened on a desktop with light colours."""
    chromium.prefer("light")
    chromium.resize(DESKTOP)
    chromium.open(page)
    return chromium


def column(browser: Browser, index: int) -> list[str]:
    """A column of the first table, as sorted."""
    cells = f"[...{FIRST_TABLE}.tBodies[0].rows].map(row => row.cells[{index}].dataset.value)"
    values: list[str] = browser.run(cells)
    return values


def head(index: int) -> str:
    return f"{FIRST_TABLE}.tHead.rows[0].cells[{index}]"


def test_there_is_no_error_and_no_network_request(browser: Browser, page: Path) -> None:
    browser.run(OPEN_ALL)
    browser.run("document.querySelectorAll('button').forEach(button => button.click())")
    own = page.resolve().as_uri()
    assert browser.complaints == []
    assert {url for url in browser.requests if not url.startswith("data:")} == {own}


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_every_figure_is_visible(width: int, browser: Browser) -> None:
    browser.resize(width)
    sizes = browser.run(
        "[...document.querySelectorAll('figure img, figure svg, .layer dd, .track, .dot')]"
        ".filter(one => one.offsetParent !== null || one.closest('svg'))"
        ".map(one => one.getBoundingClientRect()).map(box => [box.width, box.height])"
    )
    assert len(sizes) > 50
    assert all(width > 0 and height > 0 for width, height in sizes)
    pictures = browser.run("[...document.images].map(image => image.naturalWidth)")
    assert len(pictures) == 2
    assert all(pictures)
    lines = "[...document.querySelectorAll('.chart polyline')].map(l => l.getTotalLength())"
    assert min(browser.run(lines)) > 100


@pytest.mark.parametrize("width", [PHONE, 768, DESKTOP])
def test_nothing_overflows_the_page_sideways(width: int, browser: Browser) -> None:
    browser.resize(width)
    browser.run(OPEN_ALL)
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_wide_tables_scroll_with_their_first_column_in_view(browser: Browser) -> None:
    browser.resize(PHONE)
    left = browser.run(
        "(() => { const box = document.querySelector('.scroll'); box.scrollLeft = 200;"
        "const cell = box.querySelector('tbody th').getBoundingClientRect();"
        "return [box.scrollLeft, cell.left - box.getBoundingClientRect().left, cell.right]; })()"
    )
    assert left[0] > 100
    assert 0 <= left[1] < 20
    assert left[2] < PHONE


def test_a_click_sorts_and_a_second_click_reverses_the_order(browser: Browser) -> None:
    assert browser.run(f"{head(1)}.getAttribute('aria-sort')") == "descending"
    shown = [float(value) for value in column(browser, 2)]
    browser.run(f"{head(2)}.querySelector('button').click()")
    assert [float(value) for value in column(browser, 2)] == sorted(shown, reverse=True)
    assert browser.run(f"{head(2)}.getAttribute('aria-sort')") == "descending"
    assert browser.run(f"{head(1)}.getAttribute('aria-sort')") is None
    browser.run(f"{head(2)}.querySelector('button').click()")
    assert [float(value) for value in column(browser, 2)] == sorted(shown)
    assert browser.run(f"{head(2)}.getAttribute('aria-sort')") == "ascending"


def test_the_keyboard_sorts_texts_in_ascending_order(browser: Browser) -> None:
    browser.run(f"{head(0)}.querySelector('button').focus()")
    browser.press("Enter")
    names = column(browser, 0)
    assert names == sorted(names, key=str.lower)
    assert browser.run(f"{head(0)}.getAttribute('aria-sort')") == "ascending"


def test_the_pointer_and_the_arrows_read_scores_off_a_chart(browser: Browser) -> None:
    browser.run(
        "(() => { const svg = document.querySelector('.chart svg');"
        "const box = svg.getBoundingClientRect();"
        "svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 10})); })()"
    )
    tip = "document.querySelector('.tip')?.innerText ?? ''"
    text = browser.run(tip)
    assert "epoch" in text
    assert "CaNet" in text
    browser.run("document.querySelector('.chart svg').focus({preventScroll: true})")
    browser.press("ArrowLeft")
    assert browser.run(tip) not in ("", text)
    browser.run("document.querySelector('.chart svg').blur()")
    assert browser.run(tip) == ""


def test_the_legend_highlights_one_method(browser: Browser) -> None:
    browser.run("document.querySelector('.legend button').click()")
    labels = "[...document.querySelectorAll('.line.only')].map(line => line.dataset.label)"
    assert set(browser.run(labels)) == {"CaNet"}
    browser.run("document.querySelector('.legend button').click()")
    assert browser.run(labels) == []


@pytest.mark.parametrize(("scheme", "other"), [("light", "Dark"), ("dark", "Light")])
def test_colours_follow_the_system_until_the_button_changes_them(
    scheme: str, other: str, browser: Browser
) -> None:
    brightness = (
        "getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).slice(0, 3)"
        ".reduce((sum, part) => sum + Number(part), 0) / 3"
    )
    button = "document.querySelector('.theme')"
    browser.prefer(scheme)
    assert (browser.run(brightness) > 128) == (scheme == "light")
    assert browser.run(f"{button}.textContent") == other
    browser.run(f"{button}.click()")
    assert (browser.run(brightness) > 128) == (scheme == "dark")


def test_text_has_enough_contrast_in_both_schemes(browser: Browser) -> None:
    ratio = """(() => {
      const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((part) => {
        const share = part / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      }).reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
      const behind = (one) => {
        for (let at = one; at; at = at.parentElement) {
          const colour = getComputedStyle(at).backgroundColor;
          if (colour !== 'rgba(0, 0, 0, 0)') return colour;
        }
        return 'rgb(255, 255, 255)';
      };
      const ratios = [...document.querySelectorAll('h1, h2, p, a, caption, th, td, .below, .note')]
        .filter((one) => one.offsetParent).map((one) => {
          const [ink, paper] = [light(getComputedStyle(one).color), light(behind(one))];
          return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
        });
      return Math.min(...ratios);
    })()"""
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        assert browser.run(ratio) >= 4.5

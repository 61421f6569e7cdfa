"""The site builds without warnings, it loads nothing from the network, and the code of its pages
runs."""

import contextlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
import typer

from canet.cli import app
from canet.data.benchmarks import synthetic
from canet.models import parts, portfolio
from canet.models.shifts import simulate_shifts
from canet.util.files import read_json
from tests.support.browser import run_in
from tests.support.commands import call
from tests.support.small_task import FEW

ROOT = Path(__file__).parents[1]
STORED = read_json(ROOT / "results" / "measurements.json")
SOURCES = ("README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")))
TESTED_ELSEWHERE = "docs/examples.md"
"""The page whose code test_examples.py runs."""
LONG = (
    "README.md",
    "docs/get-started.md",
    "docs/guide/compare.md",
    "docs/guide/your-graph.md",
    "docs/benchmark/tasks.md",
)
"""Pages whose code takes several seconds."""
SITE = "https://canet-dev.github.io/canet"
REPOSITORY = "https://(?:github|raw.githubusercontent).com/canet-dev/canet(?:/blob|/tree)?/main"
LANGUAGES = {"python", "sh", "text", "json", "bibtex", "csv", "toml"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in a temporary folder."""
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("site")
    (folder / "mkdocs.yml").write_bytes((ROOT / "mkdocs.yml").read_bytes())
    shutil.copytree(ROOT / "docs", folder / "docs")  # zensical rejects a link
    for name in ("src", "results", "CONTRIBUTING.md"):
        (folder / name).symlink_to(ROOT / name)
    build = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
        timeout=300,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    assert "arning" not in build.stdout + build.stderr, build.stdout + build.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}


def test_every_markdown_page_is_in_the_site(site: Path) -> None:
    sources = {p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md")}
    assert {path for path in sources if not (site / path.with_suffix(".html")).is_file()} == set()


def test_a_page_loads_only_files_of_the_site(site: Path, pages: dict[Path, str]) -> None:
    """The build itself fails on broken links."""
    for path, page in pages.items():
        found = re.findall(r'\ssrc="([^"]*)"|<link rel="(?!canonical)[^>]* href="([^"]*)"', page)
        for file in (urlsplit(source or href) for source, href in found):
            assert not file.netloc, file.geturl()
            if path.name != "404.html":  # its addresses start at the root of a server
                assert (path.parent / unquote(file.path)).is_file(), file.geturl()
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", style.read_text("utf-8"))


def test_formulas_are_drawn_in_pages_and_docstrings(site: Path, pages: dict[Path, str]) -> None:
    assert pages[site / "reference" / "theory.html"].count("<math") > 20
    assert pages[site / "reference" / "api-research.html"].count("<math") > 20
    for path, page in pages.items():
        text = re.sub(r"<(code|pre|script|style|math)\b.*?</\1>|<[^>]*>", "", page, flags=re.DOTALL)
        for source in ("$", ".. math", ":class:"):
            assert source not in text, path


def test_a_newcomer_can_finish_the_site() -> None:
    pages = [(ROOT / source).read_text(encoding="utf-8") for source in SOURCES[1:]]
    assert len(pages) <= 40
    assert sum(len(page.split()) for page in pages) <= 38_000
    for name, lines in (("README.md", 100), ("CONTRIBUTING.md", 80)):
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= lines


@pytest.mark.parametrize("source", [*SOURCES, "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_address_of_the_site_and_the_repository_exists(source: str) -> None:
    """Such links also work on PyPI, on GitHub and from disk."""
    text = (ROOT / source).read_text(encoding="utf-8")
    for path in re.findall(rf"{SITE}/([\w/-]+)\.html", text):
        assert (ROOT / "docs" / f"{path}.md").is_file(), path
    for path in re.findall(rf"{REPOSITORY}/([\w./-]+)", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", ["settings_page", "command_line_page"])
def test_generated_pages_match_the_code(name: str) -> None:
    module = importlib.import_module(f"docs.extensions.{name}")
    text = module.PAGE.read_text(encoding="utf-8")
    assert module.page(text) == text, f"python -m docs.extensions.{name} writes the page again"


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_the_window_and_make_no_request(
    pages: dict[Path, str], tmp_path: Path, width: int
) -> None:
    """Frames have no address, so each page gets that of its file as base."""
    paths = [path for path in pages if path.name != "404.html"]
    texts = [
        pages[path].replace("<head>", f'<head><base href="{path.as_uri()}">') for path in paths
    ]
    script = """return [
      document.documentElement.scrollWidth,
      window.performance.getEntriesByType("resource").map((one) => one.name),
    ];"""
    for path, found in zip(
        paths, run_in(script, *texts, folder=tmp_path, width=width), strict=True
    ):
        assert found[0] <= width, path
        assert all(url.startswith(("file:", "data:")) for url in found[1]), path


class Block(NamedTuple):
    """A fenced block of a page, and the reason if it is not run."""

    language: str
    code: str
    not_run: str

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block, with continued lines joined and comments removed."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]


def blocks(source: str) -> list[Block]:
    """The fenced blocks of a page.

    `<!-- not run: REASON -->` above a block excludes it, `<!-- not run on this page: REASON -->`
    excludes all blocks of a page.
    """
    text = (ROOT / source).read_text(encoding="utf-8")
    whole_page = re.search(r"<!-- not run on this page: (.+?) -->", text, re.DOTALL)
    pattern = r"(?:^<!-- not run: ([^>]+) -->\n\n?)?^```([^\n]*)\n(.*?)^```$"
    return [
        Block(language, code, reason or (whole_page[1] if whole_page else ""))
        for reason, language, code in re.findall(pattern, text, re.MULTILINE | re.DOTALL)
    ]


def runnable(source: str) -> list[Block]:
    """The blocks of a page that a test has to run."""
    if source == TESTED_ELSEWHERE:
        return []
    return [b for b in blocks(source) if b.language in ("python", "sh") and not b.not_run]


@pytest.mark.parametrize("source", SOURCES)
def test_every_block_of_a_page_has_a_language(source: str) -> None:
    assert {block.language for block in blocks(source)} <= LANGUAGES


@pytest.mark.parametrize("source", SOURCES)
def test_every_command_of_a_page_exists(source: str) -> None:
    """Also the commands that are not run: their options are parsed."""
    commands = typer.main.get_command(app).commands
    for block in blocks(source):
        for line in block.commands if block.language == "sh" else []:
            words = shlex.split(line, comments=True)
            if words[0] == "canet":
                commands[words[1]].make_context(words[1], words[2:])
            if words[:2] == ["python", "-m"]:
                module = ROOT / words[2].replace(".", "/")
                assert module.is_dir() or module.with_suffix(".py").is_file(), line


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, marks=[pytest.mark.slow] if source in LONG else [])
        for source in filter(runnable, SOURCES)
    ],
)
@pytest.mark.filterwarnings("ignore:.*(counties/2016|unlabelled).* has empty cells in columns")
def test_the_code_of_a_page_runs(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python blocks share one namespace, and commands run in the same folder.

    `auto` tries one model with one held-out part, and the built-in graph is small.
    """
    for name in portfolio.PRESETS:
        monkeypatch.setitem(portfolio.PRESETS, name, FEW[1:2])
    monkeypatch.setattr(parts, "simulate_shifts", lambda task: simulate_shifts(task)[:1])
    monkeypatch.setattr(synthetic, "NUM_USERS", 300)
    (tmp_path / "counties").symlink_to(ROOT / "examples" / "counties")
    space: dict[str, object] = {"__name__": "page"}
    with contextlib.chdir(tmp_path):
        for block in runnable(source):
            if block.language == "python":
                exec(compile(block.code, source, "exec"), space)
                continue
            for line in block.commands:
                if line.startswith("canet "):
                    answer = call(tmp_path, *shlex.split(line, comments=True)[1:])
                    assert answer.code == 0, line + answer.out + answer.err
                else:
                    subprocess.run(["bash", "-ec", line], check=True, capture_output=True)


@pytest.mark.parametrize("table", STORED, ids=lambda table: table["about"])
def test_a_stored_measurement_is_what_its_page_shows(table: dict[str, Any]) -> None:
    page = (ROOT / table["page"]).read_text(encoding="utf-8")
    assert {"command", "hardware", "date"} <= table.keys()
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.split("\n")]
    for row in (table["columns"], *table["rows"]):
        assert row in shown


def test_notation_is_drawn_and_code_and_prices_are_left_alone() -> None:
    pytest.importorskip("latex2mathml")
    from markdown import markdown

    def drawn(text: str) -> str:
        return markdown(text, extensions=["fenced_code", "docs.extensions.notation"])

    assert drawn("of $[N, D]$ rows").count("<math") == 1
    assert drawn("$e_1$ and $e_2$, wrapped $a\n+ b$").count("<math") == 3
    block = drawn("See\n\n.. math:: a = \\frac{b}{c},\n          d\n\nand so on")
    assert block.count('display="block"') == 1
    assert "<p>and so on</p>" in block
    assert drawn("$$a + b$$").count('display="block"') == 1
    assert drawn(":class:`Branches`") == "<p><code>Branches</code></p>"
    for text in ("`$x$`", "5 $ or 6 $ a piece", "$5 and $6", "```\n$a$\n```"):
        assert "<math" not in drawn(text)

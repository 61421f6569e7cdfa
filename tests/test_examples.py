"""The scripts in examples/ run and print what their pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PAGES = EXAMPLES.parent / "docs" / "examples"


def printed(script: str, *arguments: str, root: Path | None = None, may_warn: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CANET_DATA_ROOT": str(root or "")},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert may_warn or "Warning" not in done.stderr, done.stderr
    return done.stdout


def words(text: str) -> set[str]:
    """The words of a text, without numbers and predictions."""
    return set(re.findall(r"[A-Za-z_]{2,}", text)) - {"yes", "no"}


def shown(page: str) -> str:
    """The output on an example's page."""
    text = (PAGES / page).read_text(encoding="utf-8")
    (output,) = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return output


@pytest.mark.slow
def test_your_csv_finds_the_column_that_shifted() -> None:
    output = printed("your_csv.py", "--epochs", "30")
    assert "shifted since training: voucher" in output
    assert words(output) == words(shown("your-csv.md"))


@pytest.mark.slow
def test_your_csv_takes_folders(tmp_path: Path) -> None:
    nodes = "id,size,colour\n" + "".join(
        f"{i},{i % 2},{'red' if i % 2 else 'blue'}\n" for i in range(40)
    )
    edges = "source,target\n" + "".join(f"{i},{(i + 2) % 40}\n" for i in range(40))
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "nodes.csv").write_text(nodes)
        (tmp_path / folder / "edges.csv").write_text(edges)
    folders = [str(tmp_path / folder) for folder in ("old", "new")]
    options = ("--label", "colour", "--undirected", "--epochs", "5")
    output = printed("your_csv.py", *folders, *options, may_warn=True)
    assert "classes: blue, red" in output


@pytest.mark.slow
def test_an_export_with_gaps_needs_no_preparation(tmp_path: Path) -> None:
    output = printed("export_with_gaps.py", "--out", str(tmp_path / "shop"), may_warn=True)
    assert words(output.replace(str(tmp_path), "")) == words(shown("export-with-gaps.md"))
    assert "shifted since May: balance" in output
    assert (tmp_path / "shop" / "diagnosis.html").is_file()


@pytest.mark.slow
def test_users_over_countries_runs(data_root: Path) -> None:
    output = printed("users_over_countries.py", "--epochs", "2", root=data_root, may_warn=True)
    assert words(output) == words(shown("users-over-countries.md"))


@pytest.mark.slow
def test_fraud_over_time_runs(data_root: Path) -> None:
    output = printed("fraud_over_time.py", "--epochs", "1", root=data_root, may_warn=True)
    assert words(output) == words(shown("fraud-over-time.md"))


@pytest.mark.slow
def test_counties_over_years_runs(data_root: Path, tmp_path: Path) -> None:
    arguments = ("--out", str(tmp_path / "counties"))
    output = printed("counties_over_years.py", *arguments, root=data_root, may_warn=True)
    assert "shifted since 2012: unemployment" in output
    assert (tmp_path / "counties" / "diagnosis.html").is_file()


def test_the_quickstart_page_shows_the_notebook() -> None:
    from docs.extensions.notebook_page import IMAGES, PAGE, read, render

    text, images = render(read())
    assert PAGE.read_text(encoding="utf-8") == text
    assert images
    assert {name: (IMAGES / name).read_bytes() for name in images} == images


@pytest.mark.slow
def test_the_quickstart_notebook_runs() -> None:
    """Its numbers may differ on another machine, but not what it prints about them."""
    from docs.extensions.notebook_page import execute, read, render

    stored, again = (words(render(notebook)[0]) for notebook in (read(), execute(read())))
    assert stored == again

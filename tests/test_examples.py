"""The scripts in examples/ run and print what the page of the examples shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PAGE = EXAMPLES.parent / "docs" / "examples.md"


def printed(script: str, *arguments: str, root: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CANET_DATA_ROOT": str(root or "")},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def words(text: str) -> set[str]:
    """The words of a text, without numbers and predictions."""
    return set(re.findall(r"[A-Za-z_]{2,}", text)) - {"yes", "no"}


def shown(heading: str) -> str:
    """The output below a heading of the page."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    output = re.search(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return output[1]


@pytest.mark.slow
def test_an_export_with_gaps_needs_no_preparation(tmp_path: Path) -> None:
    output = printed("export_with_gaps.py", "--out", str(tmp_path / "shop"))
    assert words(output.replace(str(tmp_path), "")) == words(shown("An export with gaps"))
    assert "shifted since May: balance" in output
    assert (tmp_path / "shop" / "diagnosis.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "epochs"), [("Users over countries", 2), ("Fraud over time", 1)]
)
def test_an_example_on_public_data_runs(heading: str, epochs: int, data_root: Path) -> None:
    script = f"{heading.lower().replace(' ', '_')}.py"
    output = printed(script, "--epochs", str(epochs), root=data_root)
    assert words(output) == words(shown(heading))


@pytest.mark.slow
def test_counties_over_years_runs(data_root: Path, tmp_path: Path) -> None:
    arguments = ("--out", str(tmp_path / "counties"))
    output = printed("counties_over_years.py", *arguments, root=data_root)
    assert "relies on unemployment" in output
    assert (tmp_path / "counties" / "diagnosis.html").is_file()


@pytest.mark.slow
def test_the_quickstart_notebook_prints_what_it_shows(tmp_path: Path) -> None:
    """Its numbers may differ on another machine, but not what it prints about them."""
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    def text() -> str:
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        return "".join(output.text for output in outputs if output.output_type == "stream")

    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    before, resources = text(), {"metadata": {"path": tmp_path}}
    quiet = os.environ | {"PYTHONWARNINGS": "ignore:IProgress not found"}  # from tqdm
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute(env=quiet)
    assert words(before) == words(text())


@pytest.mark.parametrize("year", [2012, 2016])
def test_the_counties_are_those_of_the_raw_files(
    year: int, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from counties_over_years import write_year

    write_year(data_root / "election", tmp_path, year)
    for name in ("nodes.csv", "edges.csv"):
        written = (tmp_path / name).read_bytes()
        assert written == (EXAMPLES / "counties" / str(year) / name).read_bytes()

from __future__ import annotations

from pathlib import Path

import pytest

from canet.errors import CanetError
from canet.report import embedded
from canet.store import RunFolder
from canet.store.run_folder import MARKER
from canet.util.files import write_json
from tests.finished import make_config
from tests.report.reproduction import SVG


def test_a_figure_in_two_formats_is_embedded_once_as_svg(tmp_path: Path) -> None:
    for name in ("b-plot.png", "b-plot.svg", "a.png", "notes.txt"):
        (tmp_path / name).write_text(SVG, encoding="utf-8")
    first, second = embedded.figures(tmp_path)
    assert (first.title, first.uri[:22]) == ("A", "data:image/png;base64,")
    assert (second.title, second.uri[:26]) == ("B: plot", "data:image/svg+xml;base64,")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"rows": [[3]]}'])
def test_a_file_that_is_not_a_table_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(CanetError, match=r"x\.json"):
        embedded.tables(tmp_path)


def test_folders_that_do_not_exist_hold_nothing(tmp_path: Path) -> None:
    assert embedded.figures(tmp_path / "figures") == []
    assert embedded.tables(tmp_path / "tables") == []
    assert embedded.failures(tmp_path) == []


def test_failed_jobs_are_listed_with_their_last_lines_until_they_are_finished(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        RunFolder(tmp_path / name).begin(make_config(method="eerm", seed=3))
        write_json(tmp_path / name / "failed.json", {"lines": ["a", "b"]})
    (tmp_path / "two" / MARKER).touch()
    write_json(tmp_path / "zero" / "failed.json", {"lines": ["before it began"]})
    assert embedded.failures(tmp_path) == [
        ("synthetic eerm-gcn, seed 3 (one)", ["a", "b"]),
        ("zero", ["before it began"]),
    ]

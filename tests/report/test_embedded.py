from pathlib import Path

import pytest

from canet.errors import CanetError, InputWarning
from canet.report.html import failures, figures
from canet.report.tables import Table
from canet.store import RunFolder
from canet.store.run_folder import MARKER
from canet.util.files import write_json
from tests.support.finished import make_config
from tests.support.reproduction import SVG

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_figure_in_two_formats_is_embedded_once_as_svg(tmp_path: Path) -> None:
    for name in ("b-plot.png", "b-plot.svg", "a.png", "notes.txt"):
        (tmp_path / name).write_bytes(SVG.encode() if name.endswith("svg") else PNG)
    first, second = figures(tmp_path)
    assert (first[0], first[1][:22]) == ("A", "data:image/png;base64,")
    assert (second[0], second[1][:26]) == ("B: plot", "data:image/svg+xml;base64,")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"rows": [[3]]}'])
def test_a_file_that_is_not_a_table_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(CanetError, match=r"x\.json"):
        Table.read(tmp_path / "x.json")


def test_missing_folders_are_empty(tmp_path: Path) -> None:
    assert figures(tmp_path / "figures") == []
    assert failures(tmp_path) == []


def test_failed_jobs_are_listed_with_their_last_lines_until_they_are_finished(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        RunFolder(tmp_path / name).begin(make_config(method="eerm", seed=3))
        write_json(tmp_path / name / "failed.json", {"lines": ["a", "b"]})
    (tmp_path / "two" / MARKER).touch()
    write_json(tmp_path / "zero" / "failed.json", {"lines": ["before it began"]})
    assert failures(tmp_path) == [
        ("synthetic eerm-gcn, seed 3 (one)", ["a", "b"]),
        ("zero", ["before it began"]),
    ]


def test_only_pictures_inside_the_folder_are_embedded(tmp_path: Path) -> None:
    """Not a link to another picture, and not those of a linked folder."""
    inside, outside = tmp_path / "out" / "figures", tmp_path / "private"
    inside.mkdir(parents=True)
    outside.mkdir()
    (outside / "photo.png").write_bytes(PNG)
    (inside / "link.png").symlink_to(outside / "photo.png")
    (inside / "real.png").write_bytes(PNG)
    with pytest.warns(InputWarning, match="link"):
        assert [title for title, _ in figures(inside)] == ["Real"]
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "figures").symlink_to(outside)
    with pytest.warns(InputWarning, match="photo"):
        assert figures(tmp_path / "linked" / "figures") == []

import json
from pathlib import Path

import pytest

from canet.report import embedded
from canet.store import RunFolder
from canet.store.run_folder import CONFIG, MARKER
from canet.util.files import write_json
from tests.finished import make_config
from tests.report.reproduction import SVG, TABLE


def test_a_figure_in_two_formats_is_embedded_once_as_svg(tmp_path: Path) -> None:
    for name in ("b-plot.png", "b-plot.svg", "a.png", "notes.txt"):
        (tmp_path / name).write_text(SVG, encoding="utf-8")
    (first, second), left_out = embedded.figures(tmp_path)
    assert left_out == []
    assert (first.title, first.uri[:22]) == ("A", "data:image/png;base64,")
    assert (second.title, second.uri[:26]) == ("B: plot", "data:image/svg+xml;base64,")


def test_the_tables_of_a_folder_are_those_that_were_written(tmp_path: Path) -> None:
    TABLE.write(tmp_path)
    assert embedded.tables(tmp_path) == ([TABLE], [])


def test_folders_that_are_not_there_hold_nothing(tmp_path: Path) -> None:
    assert embedded.figures(tmp_path / "figures") == ([], [])
    assert embedded.tables(tmp_path / "tables") == ([], [])
    assert embedded.failures(tmp_path) == []


def test_failed_jobs_are_told_with_their_last_lines_until_they_are_finished(tmp_path: Path) -> None:
    for name in ("one", "two"):
        RunFolder(tmp_path / name).begin(make_config(method="eerm", seed=3))
        write_json(tmp_path / name / "failed.json", {"lines": ["a", "b"]})
    (tmp_path / "two" / MARKER).touch()
    assert embedded.failures(tmp_path) == [("synthetic eerm-gcn, seed 3 (one)", ["a", "b"])]


def test_a_job_that_failed_before_it_began_is_told_by_its_folder(tmp_path: Path) -> None:
    write_json(tmp_path / "one" / "failed.json", {"lines": ["a"]})
    assert embedded.failures(tmp_path) == [("one", ["a"])]


def test_a_job_whose_files_are_damaged_is_told_all_the_same(tmp_path: Path) -> None:
    for name in ("config", "folder", "link", "torn"):
        (tmp_path / name).mkdir()
    (tmp_path / "config" / CONFIG).write_text('{"task":')
    write_json(tmp_path / "config" / "failed.json", {"lines": ["boom"]})
    (tmp_path / "folder" / "failed.json").mkdir()
    (tmp_path / "link" / "failed.json").symlink_to("nowhere")
    (tmp_path / "torn" / "failed.json").write_text("{")
    damage = ["what it left is damaged"]
    assert embedded.failures(tmp_path) == [
        ("a job whose config.json cannot be read (config)", ["boom"]),
        ("folder", damage),
        ("link", damage),
        ("torn", damage),
    ]


def test_jobs_behind_a_link_are_told(tmp_path: Path) -> None:
    write_json(tmp_path / "elsewhere" / "one" / "failed.json", {"lines": ["a"]})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "elsewhere")
    assert embedded.failures(tmp_path / "out") == [("link/one", ["a"])]


def test_figures_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.svg").write_text(SVG, encoding="utf-8")
    (tmp_path / "figures" / "b.svg").symlink_to("nowhere")
    (tmp_path / "figures" / "c.png").mkdir()
    found, left_out = embedded.figures(tmp_path / "figures")
    assert [figure.title for figure in found] == ["A"]
    assert left_out == [
        "'figures/b.svg' cannot be read (No such file or directory)",
        "'figures/c.png' cannot be read (Is a directory)",
    ]


WHOLE = {"name": "a", "title": "b", "columns": ["c"], "rows": [["d"]], "notes": ["e"]}
CELL = {"values": [1.0], "published": None}


def test_a_table_of_this_form_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", WHOLE | {"rows": [["d"], [CELL]]})
    assert len(embedded.tables(tmp_path)[0]) == 1


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "null", "{}", "[" * 10**5, "\udc80"),
        *(json.dumps(WHOLE | {name: 3}) for name in ("title", "columns", "rows", "notes", "more")),
        *(json.dumps(WHOLE | {name: [3]}) for name in ("columns", "rows", "notes")),
        *(json.dumps(WHOLE | {"rows": [row]}) for row in ([], ["d", "d"], [{}])),
        *(
            json.dumps(WHOLE | {"rows": [[CELL | {name: value}]]})
            for name, value in (("values", ["1"]), ("rank", 9), ("published", [1, 2]))
        ),
    ],
)
def test_a_damaged_table_is_named(content: str, tmp_path: Path) -> None:
    TABLE.write(tmp_path / "tables")
    (tmp_path / "tables" / "x.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    found, left_out = embedded.tables(tmp_path / "tables")
    assert found == [TABLE]
    assert left_out == ["'tables/x.json' is damaged: `canet reproduce` writes it anew"]

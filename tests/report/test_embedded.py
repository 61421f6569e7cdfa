from dataclasses import asdict
from pathlib import Path

from canet.files import write_json
from canet.report import embedded
from canet.training.checkpoint import CONFIG, MARKER
from tests.finished import make_config
from tests.report.reproduction import SVG, TABLE


def test_a_figure_in_two_formats_is_embedded_once_as_svg(tmp_path: Path) -> None:
    for name in ("b-plot.png", "b-plot.svg", "a.png", "notes.txt"):
        (tmp_path / name).write_text(SVG, encoding="utf-8")
    first, second = embedded.figures(tmp_path)
    assert (first.title, first.uri[:22]) == ("A", "data:image/png;base64,")
    assert (second.title, second.uri[:26]) == ("B: plot", "data:image/svg+xml;base64,")


def test_the_tables_of_a_folder_are_those_that_were_written(tmp_path: Path) -> None:
    TABLE.write(tmp_path)
    assert embedded.tables(tmp_path) == [TABLE]


def test_folders_that_are_not_there_hold_nothing(tmp_path: Path) -> None:
    assert embedded.figures(tmp_path / "figures") == []
    assert embedded.tables(tmp_path / "tables") == []
    assert embedded.failures(tmp_path) == []


def test_failed_jobs_are_told_with_their_last_lines_until_they_are_finished(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_json(tmp_path / name / CONFIG, asdict(make_config(method="eerm", seed=3)))
        write_json(tmp_path / name / "failed.json", {"lines": ["a", "b"]})
    (tmp_path / "two" / MARKER).touch()
    assert embedded.failures(tmp_path) == [("synthetic eerm-gcn, seed 3 (one)", ["a", "b"])]


def test_a_job_that_failed_before_it_began_is_told_by_its_folder(tmp_path: Path) -> None:
    write_json(tmp_path / "one" / "failed.json", {"lines": ["a"]})
    assert embedded.failures(tmp_path) == [("one", ["a"])]

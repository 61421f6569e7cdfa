from __future__ import annotations

import lzma
import shutil
import tarfile
from pathlib import Path

import pytest

from canet.errors import CanetError, ChecksumError, MissingFileError
from canet.report.results import find_results
from canet.store import RunFolder, find_runs, runs_at, unpack_archive, write_archive
from canet.store.run_folder import CONFIG, MARKER, RESULT, WEIGHTS
from tests.cli.commands import call
from tests.finished import change_result, make_config, write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three finished runs, one with curves, one with an extra file."""
    root = tmp_path / "out" / "runs"
    for seed, curves in ((0, True), (1, False), (2, False)):
        place = write_run(root, make_config(seed=seed, ood_curves=curves), {"ood/a": 50.0 + seed})
    place.add_json("extra.json", {"a": 1})
    return root


@pytest.fixture
def archive(runs: Path, tmp_path: Path) -> Path:
    target = tmp_path / "runs.tar.xz"
    write_archive(find_runs(runs), target)
    return target


def test_runs_of_an_archive_are_those_of_the_folder(runs: Path, archive: Path) -> None:
    with runs_at(archive) as root:
        assert find_results(root) == find_results(runs)
    assert not root.exists()


def test_an_archive_has_curves_where_all_splits_were_scored_and_no_weights(archive: Path) -> None:
    with runs_at(archive) as root:
        assert {p.path.parent.name: p.has_metrics for p in find_runs(root)} == {
            make_config(ood_curves=True).name: True,
            make_config().name: False,
        }
        assert not list(root.rglob(WEIGHTS))
        assert len(list(root.rglob("extra.json"))) == 1


def test_the_same_runs_give_the_same_bytes(runs: Path, archive: Path, tmp_path: Path) -> None:
    unpack_archive(archive, tmp_path / "again")
    write_archive(find_runs(tmp_path / "again"), tmp_path / "again.tar.xz")
    assert (tmp_path / "again.tar.xz").read_bytes() == archive.read_bytes()


def test_files_of_an_archive_are_those_of_the_runs_and_are_sealed_again(
    runs: Path, archive: Path, tmp_path: Path
) -> None:
    unpack_archive(archive, tmp_path / "again")
    for place in find_runs(tmp_path / "again"):
        original = RunFolder(runs / place.path.relative_to(tmp_path / "again"))
        assert {CONFIG, RESULT} <= place.files.keys()
        assert place.files.items() < original.files.items()
        assert place.problems() == []


def test_a_run_with_a_changed_file_does_not_get_into_an_archive(runs: Path, tmp_path: Path) -> None:
    result = find_runs(runs)[0].path / RESULT
    result.write_bytes(result.read_bytes().replace(b"99", b"89"))
    with pytest.raises(ChecksumError, match=RESULT):
        write_archive(find_runs(runs), tmp_path / "runs.tar.xz")
    assert not (tmp_path / "runs.tar.xz").exists()


def test_a_finished_run_is_not_replaced_and_an_unfinished_one_is(runs: Path, archive: Path) -> None:
    first, second, _ = find_runs(runs)
    change_result(first, epochs=77)
    (second.path / MARKER).unlink()
    (second.path / RESULT).write_text("half")
    unpack_archive(archive, runs)
    assert first.read_result().epochs == 77
    assert second.finished
    assert second.read_result().scores.keys() > {"ood/a"}


def test_what_is_not_an_archive_is_rejected(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(b"text")
    with pytest.raises(ChecksumError, match=archive.name):
        unpack_archive(archive, tmp_path / "out")
    archive.write_bytes(lzma.compress(b"text"))
    with pytest.raises(CanetError, match=archive.name):
        unpack_archive(archive, tmp_path / "out")
    archive.unlink()
    with pytest.raises(MissingFileError, match=archive.name):
        unpack_archive(archive, tmp_path / "out")


def test_a_path_that_leaves_the_folder_is_rejected(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz") as packed:
        packed.addfile(tarfile.TarInfo("../../evil/done"))
    with pytest.raises(CanetError, match="archive"):
        unpack_archive(tmp_path / "bad.tar.xz", tmp_path / "a" / "b")
    assert not (tmp_path / "evil").exists()


def test_an_archive_needs_its_suffix(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(CanetError, match=r"end in \.tar\.xz"):
        write_archive(find_runs(runs), tmp_path / "runs.zip")


def test_a_copy_of_a_run_is_neither_packed_nor_counted(
    runs: Path, archive: Path, tmp_path: Path
) -> None:
    first = find_runs(runs)[0].path
    shutil.copytree(first, first.with_name("copy"))
    assert len(find_runs(runs)) == 4
    assert write_archive(find_runs(runs), tmp_path / "again.tar.xz") == 3
    assert (tmp_path / "again.tar.xz").read_bytes() == archive.read_bytes()
    answer = call(tmp_path, "archive", runs, "--out", "told.tar.xz")
    assert answer.out.startswith("3 runs: told.tar.xz")

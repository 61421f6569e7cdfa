from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from canet.cli.verification import verify
from canet.errors import CanetError
from canet.report import write_report
from canet.report.results import read_results
from canet.store import RunFolder, find_runs, runs_at, unpack_archive, write_archive
from canet.store.record import MARKER, read_record, write_record
from canet.store.run_folder import METRICS, RESULT, WEIGHTS
from canet.util.files import sha256, write_json
from tests.cli.commands import call
from tests.finished import make_config, write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three finished runs, one with curves, one with a file beside it, all with weights."""
    root = tmp_path / "out" / "runs"
    for seed, curves in ((0, True), (1, False), (2, False)):
        place = write_run(root, make_config(seed=seed, ood_curves=curves), {"ood/a": 50.0 + seed})
        (place.path / WEIGHTS).write_bytes(b"weights")
    write_json(place.path / "extra.json", {"a": 1})
    return root


@pytest.fixture
def archive(runs: Path, tmp_path: Path) -> Path:
    target = tmp_path / "runs.tar.xz"
    write_archive(find_runs(runs), target)
    return target


def test_runs_of_an_archive_are_those_of_the_folder(runs: Path, archive: Path) -> None:
    with runs_at(archive) as root:
        ours, theirs = read_results(root), read_results(runs)
        assert [r.config for r in ours] == [r.config for r in theirs]
        assert [r.runs for r in ours] == [r.runs for r in theirs]
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


def test_an_archive_keeps_the_checksums_of_what_it_keeps(runs: Path, tmp_path: Path) -> None:
    for place in find_runs(runs):
        names = [path.name for path in place.path.iterdir() if path.name != MARKER]
        write_record(place.path, {name: sha256(place.path / name) for name in names})
    write_archive(find_runs(runs), tmp_path / "runs.tar.xz")
    unpack_archive(tmp_path / "runs.tar.xz", tmp_path / "again")
    for place in find_runs(tmp_path / "again"):
        kept = {path.name: sha256(path) for path in place.path.iterdir() if path.name != MARKER}
        assert read_record(place.path) == kept
        assert place.read_result()["scores"]
    write_archive(find_runs(tmp_path / "again"), tmp_path / "again.tar.xz")
    assert sha256(tmp_path / "again.tar.xz") == sha256(tmp_path / "runs.tar.xz")


def test_a_damaged_run_does_not_get_into_an_archive(runs: Path, tmp_path: Path) -> None:
    place = find_runs(runs)[0]
    names = [path.name for path in place.path.iterdir() if path.name != MARKER]
    write_record(place.path, {name: sha256(place.path / name) for name in names})
    result = (place.path / RESULT).read_bytes()
    (place.path / RESULT).write_bytes(result.replace(b"99", b"89"))
    with pytest.raises(CanetError, match="is damaged or was changed"):
        write_archive(find_runs(runs), tmp_path / "runs.tar.xz")
    assert not (tmp_path / "runs.tar.xz").exists()


def test_a_finished_run_is_not_replaced_and_an_unfinished_one_is(runs: Path, archive: Path) -> None:
    first, second, _ = find_runs(runs)
    write_json(first.path / "result.json", {"scores": {"mine": 1.0}})
    (second.path / MARKER).unlink()
    write_json(second.path / "result.json", {"half": True})
    unpack_archive(archive, runs)
    assert first.read_result() == {"scores": {"mine": 1.0}}
    assert second.finished
    assert second.read_result()["scores"].keys() > {"ood/a"}


def test_a_folder_of_runs_is_read_where_it_is(runs: Path) -> None:
    with runs_at(runs) as root:
        assert root == runs


@pytest.mark.parametrize("damage", ["cut off", "other", "missing"])
def test_what_is_no_archive_is_refused(damage: str, archive: Path, tmp_path: Path) -> None:
    content = archive.read_bytes()
    if damage == "missing":
        archive.unlink()
    else:
        archive.write_bytes(content[: len(content) // 2] if damage == "cut off" else b"text")
    with pytest.raises(CanetError, match="archive"):
        unpack_archive(archive, tmp_path / "out")


def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz") as packed:
        packed.addfile(tarfile.TarInfo("../../evil/done"))
    with pytest.raises(CanetError, match="archive"):
        unpack_archive(tmp_path / "bad.tar.xz", tmp_path / "a" / "b")
    assert not (tmp_path / "evil").exists()


def test_an_archive_needs_its_suffix(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(CanetError, match=r"end in \.tar\.xz"):
        write_archive(find_runs(runs), tmp_path / "runs.zip")


def test_reading_curves_that_an_archive_left_out_names_the_file(
    archive: Path, tmp_path: Path
) -> None:
    unpack_archive(archive, tmp_path / "again")
    place = RunFolder(tmp_path / "again" / make_config().name / "seed-1")
    assert not (place.path / METRICS).exists()
    with pytest.raises(CanetError, match=METRICS):
        place.read_metrics()


@pytest.mark.parametrize("command", ["verify", "report"])
@pytest.mark.parametrize(
    "headers",
    [
        {"path": "a\0b/done"},
        {"size": "99999999999999999999"},
        {"mtime": "nan"},
        {"mtime": str(2**70)},
        {"GNU.sparse.map": "a,b", "GNU.sparse.size": "5"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"},
    ],
    ids=["nul", "size", "nan", "late", "sparse map", "sparse"],
)
def test_absurd_headers_are_refused_in_one_line(
    headers: dict[str, str], command: str, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz", preset=0) as packed:
        member = tarfile.TarInfo("run/done")
        member.size, member.pax_headers = 1, headers
        packed.addfile(member, io.BytesIO(b"x"))
    act: dict[str, Any] = {
        "verify": lambda: verify(tmp_path / "bad.tar.xz"),
        "report": lambda: write_report(tmp_path / "bad.tar.xz", tmp_path / "page.html"),
    }
    with pytest.raises(CanetError, match="is not an archive of runs, or is damaged") as caught:
        act[command]()
    assert "\n" not in str(caught.value)


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

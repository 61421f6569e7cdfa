import io
import lzma
import shutil
import tarfile
from pathlib import Path

import pytest

from canet.errors import CanetError, ChecksumError, MissingFileError
from canet.report.comparison import find_results
from canet.store import RunFolder, find_runs, open_runs, unpack_archive, write_archive
from canet.store import archive as archives
from canet.store.run_folder import CONFIG, MARKER, RESULT, WEIGHTS
from tests.support.commands import call
from tests.support.finished import change_result, make_config, write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three finished runs, one with curves, one with an extra file."""
    root = tmp_path / "out" / "runs"
    for seed, curves in ((0, True), (1, False), (2, False)):
        folder = write_run(root, make_config(seed=seed, ood_curves=curves), {"ood/a": 50.0 + seed})
    folder.add_json("extra.json", {"a": 1})
    return root


@pytest.fixture
def archive(runs: Path, tmp_path: Path) -> Path:
    target = tmp_path / "runs.tar.xz"
    write_archive(find_runs(runs), target)
    return target


def test_an_archive_contains_the_runs_of_the_folder(runs: Path, archive: Path) -> None:
    with open_runs(archive) as root:
        assert find_results(root) == find_results(runs)
    assert not root.exists()


def test_an_archive_has_no_weights_and_curves_only_if_all_splits_were_scored(archive: Path) -> None:
    with open_runs(archive) as root:
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


def test_unpacked_files_equal_those_of_the_runs_and_have_checksums(
    runs: Path, archive: Path, tmp_path: Path
) -> None:
    unpack_archive(archive, tmp_path / "again")
    for folder in find_runs(tmp_path / "again"):
        original = RunFolder(runs / folder.path.relative_to(tmp_path / "again"))
        assert {CONFIG, RESULT} <= folder.files.keys()
        assert folder.files.items() < original.files.items()
        assert folder.problems() == []


def test_a_run_with_a_changed_file_cannot_be_archived(runs: Path, tmp_path: Path) -> None:
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


def test_other_files_than_archives_are_rejected(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(b"text")
    with pytest.raises(ChecksumError, match=archive.name):
        unpack_archive(archive, tmp_path / "out")
    archive.write_bytes(lzma.compress(b"text"))
    with pytest.raises(CanetError, match=archive.name):
        unpack_archive(archive, tmp_path / "out")
    archive.unlink()
    with pytest.raises(MissingFileError, match=archive.name):
        unpack_archive(archive, tmp_path / "out")


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


# Malicious and changed archives


def pack(target: Path, files: dict[str, bytes], *others: tarfile.TarInfo) -> None:
    with tarfile.open(target, "w:xz") as packed:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
        for info in others:
            packed.addfile(info)


def packed_files(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as packed:
        return {m.name: packed.extractfile(m).read() for m in packed}  # type: ignore[union-attr]


def member(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "other",
    [
        member("../../evil", tarfile.REGTYPE),
        member("/evil", tarfile.SYMTYPE, "/etc/passwd"),
        member("evil", tarfile.FIFOTYPE),
    ],
    ids=["above", "link", "pipe"],
)
def test_an_archive_with_a_file_elsewhere_or_a_link_is_rejected_and_nothing_is_written(
    archive: Path, other: tarfile.TarInfo, tmp_path: Path
) -> None:
    before = {*tmp_path.rglob("*")}
    pack(archive, packed_files(archive), other)
    with pytest.raises(CanetError, match="evil"):
        unpack_archive(archive, tmp_path / "a" / "b")
    assert {*tmp_path.rglob("*")} == before


def test_an_archive_that_is_too_large_is_rejected(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES", 2**20)
    unpack_archive(archive, tmp_path / "fits")
    archive.write_bytes(lzma.compress(bytes(2**20 + 1)))
    with pytest.raises(CanetError, match="GiB"):
        unpack_archive(archive, tmp_path / "out")
    monkeypatch.setattr(archives, "MAX_FILES", 3)
    with pytest.raises(CanetError, match="files"):
        write_archive(find_runs(tmp_path / "fits"), archive)


def test_missing_and_changed_files_are_errors_before_any_run_is_written(
    archive: Path, tmp_path: Path
) -> None:
    whole = packed_files(archive)
    result = next(name for name in whole if name.endswith(RESULT))
    changed = whole | {result: whole[result].replace(b"99", b"98")}
    missing = {name: content for name, content in whole.items() if name != result}
    for files, error in ((changed, ChecksumError), (missing, MissingFileError)):
        pack(archive, files)
        with pytest.raises(error, match=f"{archive.name}/{result}"):
            unpack_archive(archive, tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_a_run_in_the_folder_of_another_is_rejected(archive: Path, tmp_path: Path) -> None:
    swapped = {"seed-1": "seed-2", "seed-2": "seed-1"}
    pack(
        archive,
        {
            "/".join(swapped.get(part, part) for part in name.split("/")): content
            for name, content in packed_files(archive).items()
        },
    )
    with pytest.raises(CanetError, match="seed-2"):
        unpack_archive(archive, tmp_path / "again")
    assert not (tmp_path / "again").exists()

import errno
import hashlib
import os
import pickle
from pathlib import Path

import pytest

from canet.errors import CanetError, InputError
from canet.util.files import (
    WriteError,
    atomic_path,
    cache_dir,
    read_json,
    read_regular,
    sha256,
    write_bytes,
    write_json,
)


def test_file_is_created_or_replaced_only_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "file.txt"
    with atomic_path(target) as temporary:
        temporary.write_text("old and longer")
        assert temporary.parent == target.parent
        assert not target.exists()
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old and longer"
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_old_content_survives_a_failed_block(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    write_json(target, {"old": True})
    with pytest.raises(TypeError):
        write_json(target, {"not": object()})
    assert read_json(target) == {"old": True}
    assert list(tmp_path.iterdir()) == [target]


def test_cache_folder_is_set_by_the_variable_or_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANET_CACHE", str(tmp_path / "here"))
    assert cache_dir() == tmp_path / "here"
    monkeypatch.setenv("CANET_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "canet"
    assert list(tmp_path.iterdir()) == []


def test_temporary_files_of_killed_processes_are_removed_after_a_day(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a.svg") as temporary:
        temporary.write_text("new")
    old, young, foreign = temporary, temporary.with_name(f".b{temporary.name}"), tmp_path / ".c.tmp"
    for file in (old, young, foreign):
        file.touch()
    for file in (old, foreign):
        os.utime(file, (0, 0))
    write_bytes(tmp_path / "d", b"")
    assert not old.exists()
    assert young.exists()
    assert foreign.exists()


def test_two_writers_with_the_same_host_name_and_pid_do_not_share_a_temporary_file(
    tmp_path: Path,
) -> None:
    with atomic_path(tmp_path / "a") as first, atomic_path(tmp_path / "a") as second:
        first.write_text("first")
        second.write_text("second")
        assert first.read_text() == "first"
    assert (tmp_path / "a").read_text() == "first"


def test_only_regular_files_up_to_a_limit_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "endless").symlink_to("/dev/zero")
    assert read_regular(tmp_path / "link", 4) == b"1234"
    for name in ("pipe", "endless", "."):
        for read in (read_regular, sha256, read_json):
            with pytest.raises(InputError, match="regular"):
                read(tmp_path / name)
    with pytest.raises(InputError, match="file"):
        read_regular(tmp_path / "file", 3)
    os.truncate(tmp_path / "file", 2**43)
    with pytest.raises(InputError, match="file"):
        read_regular(tmp_path / "file")


def test_writing_a_file_returns_its_digest(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"content").hexdigest()
    assert write_bytes(tmp_path / "a", b"content") == sha256(tmp_path / "a") == digest
    assert write_json(tmp_path / "b", {"τ": 0.1}) == sha256(tmp_path / "b")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_no_file(
    code: int, tmp_path: Path
) -> None:
    def write() -> None:
        with atomic_path(tmp_path / "file") as temporary:
            temporary.write_text("half")
            raise OSError(code, os.strerror(code))

    with pytest.raises(WriteError) as caught:
        write()
    assert isinstance(caught.value, CanetError)
    assert isinstance(caught.value, OSError)
    line = str(caught.value)
    assert str(tmp_path / "file") in line
    assert os.strerror(code) in line
    assert str(pickle.loads(pickle.dumps(caught.value))) == line  # as sent by a worker process
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_a_block_are_raised_unchanged(tmp_path: Path) -> None:
    def read_nothing() -> None:
        with atomic_path(tmp_path / "file"):
            (tmp_path / "absent").read_bytes()

    with pytest.raises(FileNotFoundError):
        read_nothing()


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_a_replaced_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file.csv"
    path.touch()
    path.chmod(mode)
    with atomic_path(path) as temporary:
        temporary.write_text("private")
        assert temporary.stat().st_mode & 0o077 == 0
    assert path.stat().st_mode & 0o777 == mode
    assert path.read_text() == "private"

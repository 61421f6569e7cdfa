import errno
import hashlib
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from canet.errors import CanetError
from canet.util.files import (
    WriteError,
    atomic_path,
    cache_dir,
    read_json,
    sha256,
    write_bytes,
    write_json,
)


def test_a_file_appears_or_changes_only_when_the_block_ends(tmp_path: Path) -> None:
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


def test_failed_block_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with atomic_path(tmp_path / "file.txt") as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_old_content_survives_a_failed_block(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    write_json(target, {"old": True})
    with pytest.raises(TypeError):
        write_json(target, {"not": object()})
    assert read_json(target) == {"old": True}
    assert list(tmp_path.iterdir()) == [target]


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    content = {
        "text": "τ = 1, Veličković",
        "exact": [0.1, 1 / 3, 5e-324, -1.7976931348623157e308],
        "whole": 2**53 + 1,
        "nested": {"yes": True, "no": False, "empty": [], "nothing": None},
    }
    write_json(tmp_path / "file.json", content)
    assert read_json(tmp_path / "file.json") == content
    write_json(tmp_path / "file.json", [float("nan")])
    assert math.isnan(read_json(tmp_path / "file.json")[0])


def test_cache_is_where_the_variable_says_or_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANET_CACHE", str(tmp_path / "here"))
    assert cache_dir() == tmp_path / "here"
    monkeypatch.setenv("CANET_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "canet"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    with atomic_path(tmp_path / "a.svg") as temporary:
        temporary.write_text("new")
        name = temporary.name
    left = tmp_path / name.replace(str(os.getpid()), str(killed.pid))
    alive = tmp_path / name.replace(str(os.getpid()), str(os.getppid()))
    elsewhere = tmp_path / f".a.svg.elsewhere.{killed.pid}.tmp"
    for file in (left, alive, elsewhere):
        file.touch()
    with atomic_path(tmp_path / "a.svg") as temporary:
        temporary.write_text("newer")
    assert not left.exists()
    assert alive.exists()
    assert elsewhere.exists()


def test_a_written_file_has_the_digest_that_writing_gave(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"content").hexdigest()
    assert write_bytes(tmp_path / "a", b"content") == sha256(tmp_path / "a") == digest
    assert write_json(tmp_path / "b", {"τ": 0.1}) == sha256(tmp_path / "b")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_a_full_disk_is_an_error_with_the_file_and_leaves_nothing(
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
    assert str(pickle.loads(pickle.dumps(caught.value))) == line  # it comes back from a worker
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_a_block_stay_what_they_are(tmp_path: Path) -> None:
    def read_nothing() -> None:
        with atomic_path(tmp_path / "file"):
            (tmp_path / "absent").read_bytes()

    with pytest.raises(FileNotFoundError):
        read_nothing()

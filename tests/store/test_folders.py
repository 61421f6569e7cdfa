from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from canet.errors import InputWarning
from canet.store.folders import folders_below


def names_below(root: Path) -> list[str]:
    return [folder.relative_to(root).as_posix() for folder in folders_below(root)]


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)


def test_folders_are_sorted_by_name(tmp_path: Path) -> None:
    make(tmp_path, "b/2", "b/10", "a")
    (tmp_path / "file").touch()
    assert names_below(tmp_path) == [".", "a", "b", "b/10", "b/2"]


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/deep", "root")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    assert names_below(tmp_path / "root") == [".", "link", "link/deep"]


def test_circular_links_are_followed_once(tmp_path: Path) -> None:
    make(tmp_path, "a/b")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to("self")
    (tmp_path / "again").symlink_to("a")
    (tmp_path / "nowhere").symlink_to("absent")
    assert names_below(tmp_path) == [".", "a", "a/b"]


@pytest.mark.parametrize("name", ["absent", "file"])
def test_a_file_or_a_missing_folder_has_no_folders(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert list(folders_below(tmp_path / name)) == []


def test_a_folder_that_cannot_be_read_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a/below", "b")
    scandir = os.scandir

    def scandir_without_permission(path: str) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "a":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir_without_permission)
    with pytest.warns(InputWarning, match="Permission denied"):
        assert names_below(tmp_path) == [".", "b"]

"""Folders with checksums: changed and missing files are found."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from canet.errors import CanetError, ChecksumError, MissingFileError, VersionError
from canet.store.checksums import CONTENT, FILES, ChecksummedFolder
from canet.util.files import write_bytes
from canet.util.schema import parse


class Folder(ChecksummedFolder):
    RECORD = "record.json"


@dataclass(frozen=True)
class Point:
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    x: float
    names: list[str] | None = None


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.write_record({"a": write_bytes(tmp_path / "a", b'{"x": 0.1}')}, {"τ": [0.1 + 0.2, None]})
    return folder


def test_written_content_is_read_back(folder: Folder) -> None:
    assert folder.finished
    assert folder.read_record()[CONTENT] == {"τ": [0.1 + 0.2, None]}
    assert folder.read_record()[FILES] == folder.files
    assert folder.read_bytes("a") == b'{"x": 0.1}'
    assert folder.read_json("a") == {"x": 0.1}
    assert folder.read_as(Point, "a") == Point(0.1)
    assert folder.problems() == []


def test_each_kind_of_error_has_its_type(folder: Folder) -> None:
    (folder.path / "other").write_bytes(b"x")
    with pytest.raises(MissingFileError, match="other"):
        folder.read_bytes("other")
    (folder.path / "a").write_bytes(b'{"x": 0.2}')
    with pytest.raises(ChecksumError, match="a'"):
        folder.read_bytes("a")
    assert len(folder.problems()) == 1
    (folder.path / "a").unlink()
    with pytest.raises(MissingFileError, match="a'"):
        folder.read_bytes("a")
    (folder.path / "a").mkdir()
    with pytest.raises(CanetError, match="a'"):
        folder.read_bytes("a")


@pytest.mark.parametrize(
    ("content", "name"),
    [({"x": 1.0, "y": 2}, "y"), ({}, "x"), ({"x": "text"}, "x"), ({"x": 1, "names": [3]}, "names")],
)
def test_unexpected_content_is_a_version_error(content: object, name: str) -> None:
    with pytest.raises(VersionError, match=name):
        parse(Point, content, Path("file"))


def test_nan_is_read_back() -> None:
    assert math.isnan(parse(Point, {"x": math.nan}, Path("file")).x)

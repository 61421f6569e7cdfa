"""A sealed folder: what is read is what was written, or the error says why not."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from canet.errors import CanetError, ChecksumError, MissingFileError, VersionError
from canet.store.checksums import CONTENT, FILES, ChecksummedFolder, parse
from canet.util.files import write_bytes


class Folder(ChecksummedFolder):
    RECORD = "record.json"


@dataclass(frozen=True)
class Point:
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    x: float
    names: list[str] | None = None


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    place = Folder(tmp_path)
    place.write_record({"a": write_bytes(tmp_path / "a", b'{"x": 0.1}')}, {"τ": [0.1 + 0.2, None]})
    return place


def test_everything_written_comes_back(place: Folder) -> None:
    assert place.finished
    assert place.read_record()[CONTENT] == {"τ": [0.1 + 0.2, None]}
    assert place.read_record()[FILES] == place.files
    assert place.read_bytes("a") == b'{"x": 0.1}'
    assert place.read_json("a") == {"x": 0.1}
    assert place.read_as(Point, "a") == Point(0.1)
    assert place.problems() == []


def test_each_kind_of_error_has_its_type(place: Folder) -> None:
    (place.path / "other").write_bytes(b"x")
    with pytest.raises(MissingFileError, match="other"):
        place.read_bytes("other")
    (place.path / "a").write_bytes(b'{"x": 0.2}')
    with pytest.raises(ChecksumError, match="a'"):
        place.read_bytes("a")
    assert len(place.problems()) == 1
    (place.path / "a").unlink()
    with pytest.raises(MissingFileError, match="a'"):
        place.read_bytes("a")
    (place.path / "a").mkdir()
    with pytest.raises(CanetError, match="a'"):
        place.read_bytes("a")


def test_every_changed_bit_and_every_cut_of_a_record_is_found(place: Folder) -> None:
    path = place.path / place.RECORD
    raw = path.read_bytes()
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(ChecksumError):
            place.read_record()
    for content in (*(raw[:length] for length in range(len(raw))), b"[]", b"{}", raw + b" "):
        path.write_bytes(content)
        with pytest.raises(ChecksumError):
            place.read_record()


@pytest.mark.parametrize(
    ("content", "name"),
    [({"x": 1.0, "y": 2}, "y"), ({}, "x"), ({"x": "text"}, "x"), ({"x": 1, "names": [3]}, "names")],
)
def test_content_of_another_form_is_that_of_another_version(content: object, name: str) -> None:
    with pytest.raises(VersionError, match=name):
        parse(Point, content, Path("file"))


def test_a_number_that_is_not_one_stays_so() -> None:
    assert math.isnan(parse(Point, {"x": math.nan}, Path("file")).x)


@pytest.mark.parametrize("kind", ["pipe", "endless", "huge"])
def test_a_file_that_never_ends_is_rejected(kind: str, place: Folder) -> None:
    path = place.path / "a"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(2**43)
    with pytest.raises(CanetError, match="a'"):
        place.read_bytes("a")

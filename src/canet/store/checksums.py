"""Folders with checksums: a record, which is written last, has the SHA-256 of every file.

Run folders and model folders are such folders. Whenever a file is read, it is compared with the
record. The record also has its own checksum.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from canet.errors import CanetError, ChecksumError, MissingFileError, VersionError, first_line
from canet.util.files import MAX_JSON_BYTES, digest_of, read_regular, write_bytes
from canet.util.schema import checksum_mismatch, pack_json, parse

T = TypeVar("T")
FILES, CONTENT = "files", "content"  # entries of a record: file name → SHA-256, and other content
PLAIN_NAME = re.compile(r"[\w-][\w.-]*")  # names of files in a record; none of them is a path


class ChecksummedFolder:
    """Reads and verifies the files of a folder; `RECORD` is the name of its record."""

    RECORD: ClassVar[str]

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def finished(self) -> bool:
        """Whether the record has been written."""
        return (self.path / self.RECORD).exists()

    @property
    def files(self) -> dict[str, str]:
        """Name → SHA-256 of the files in the record."""
        return self.read_record()[FILES]

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a file; if there is a record, verify the SHA-256."""
        path = self.path / name
        content = read_file(path)
        if self.finished:
            known = self.files.get(name)
            if known is None:
                raise MissingFileError(
                    f"'{path}' is not in the record '{self.RECORD}' of its folder"
                )
            if known != digest_of(content):
                raise checksum_mismatch(path)
        return content

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_bytes(name))

    def read_as(self, kind: type[T], name: str) -> T:
        """Return the content of a JSON file as a dataclass."""
        path, content = self.path / name, self.read_bytes(name)
        try:
            return parse(kind, json.loads(content), path)
        except (ValueError, RecursionError) as error:  # possible before the record is written
            raise ChecksumError(
                f"'{path}' is not a JSON file: delete it and run the command again"
            ) from error

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of a safetensors file."""
        try:
            return load(self.read_bytes(name))
        except (SafetensorError, KeyError) as error:  # a KeyError is an unknown type of numbers
            raise VersionError(
                f"'{self.path / name}' is not a safetensors file that this version can read "
                f"({first_line(error)}): write it again"
            ) from error

    def read_record(self) -> dict[str, Any]:
        """Return the content of the record; verify its checksum."""
        path = self.path / self.RECORD
        raw = read_file(path)
        try:
            record = json.loads(raw)
            files, content = record[FILES], record[CONTENT]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise checksum_mismatch(path) from error
        if not isinstance(files, dict) or pack_record(files, content) != raw:
            raise checksum_mismatch(path)
        if not all(PLAIN_NAME.fullmatch(name) and isinstance(files[name], str) for name in files):
            raise VersionError(
                f"the record '{path}' must list plain file names with their checksums"
            )
        return {FILES: files, CONTENT: content}

    def write_record(self, files: Mapping[str, str], content: object = None) -> None:
        """Write the record with the SHA-256 of all `files`, which must be written before."""
        write_bytes(self.path / self.RECORD, pack_record(files, content))

    def problems(self) -> list[str]:
        """Return a message for each file that is missing or has changed."""
        found = []
        try:
            names = sorted(self.files)
        except CanetError as error:
            return [str(error)]
        for name in names:
            try:
                self.read_bytes(name)
            except CanetError as error:
                found.append(str(error))
        return found


def pack_record(files: Mapping[str, str], content: object) -> bytes:
    """Return the bytes of a record; they are the same for the same files and content."""
    return pack_json({FILES: dict(sorted(files.items())), CONTENT: content})


def read_file(path: Path) -> bytes:
    """Return the content of a file; only safetensors files may be larger than `MAX_JSON_BYTES`."""
    try:
        return read_regular(path, None if path.suffix == ".safetensors" else MAX_JSON_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(
            f"'{path}' is missing: restore it, or delete its folder and run the command again"
        ) from error
    except OSError as error:
        raise CanetError(
            f"cannot read '{path}' ({error.strerror}): check that you may read it"
        ) from error

"""A folder of files that can be trusted: its record has the SHA-256 of each, and is written last.

Run folders and saved models are such folders. Every file is compared with the record whenever it
is read. The record has a checksum of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from safetensors.torch import load
from torch import Tensor

from canet._version import __version__
from canet.errors import CanetError, ChecksumError, MissingFileError, VersionError
from canet.util.files import MAX_JSON_BYTES, digest_of, read_regular, write_bytes

T = TypeVar("T")
FILES, CONTENT, SEAL = "files", "content", "sha256"
"""Entries of a record: file name → SHA-256, whatever else it says, and the SHA-256 of these."""


class SealedFolder:
    """Reads and checks the files of a folder; `RECORD` is the name of its record."""

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
        files: dict[str, str] = self.read_record()[FILES]
        return files

    def read_bytes(self, name: str) -> bytes:
        """The content of a file; once the record is written, only if its SHA-256 is in there."""
        path = self.path / name
        content = read_file(path)
        if self.finished:
            known = self.files.get(name)
            if known is None:
                raise MissingFileError(f"'{path}' is not part of what was saved in this folder")
            if known != digest_of(content):
                raise mismatch(path)
        return content

    def read_json(self, name: str) -> Any:
        """The content of a JSON file, of any form."""
        return json.loads(self.read_bytes(name))

    def read_as(self, kind: type[T], name: str) -> T:
        """The content of a JSON file, as a dataclass."""
        path, content = self.path / name, self.read_bytes(name)
        try:
            return parse(kind, json.loads(content), path)
        except (ValueError, RecursionError) as error:  # only before there is a checksum
            raise ChecksumError(f"'{path}' is not JSON: delete it and start again") from error

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of a safetensors file."""
        tensors: dict[str, Tensor] = load(self.read_bytes(name))
        return tensors

    def read_record(self) -> dict[str, Any]:
        """What the record says, checked against its own checksum."""
        path = self.path / self.RECORD
        raw = read_file(path)
        try:
            record = json.loads(raw)
            files, content = record[FILES], record[CONTENT]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise mismatch(path) from error
        if pack_record(files, content) != raw:
            raise mismatch(path)
        return {FILES: files, CONTENT: content}

    def write_record(self, files: Mapping[str, str], content: Any = None) -> None:
        """Write the record, after all files: name → SHA-256."""
        write_bytes(self.path / self.RECORD, pack_record(files, content))

    def problems(self) -> list[str]:
        """What is wrong with the files: a line for each that is missing or has changed."""
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


def pack_record(files: Mapping[str, str], content: Any) -> bytes:
    """A record as the bytes of its file, the same for the same files and content."""
    said = {FILES: dict(sorted(files.items())), CONTENT: content}
    seal = digest_of(json.dumps(said).encode())
    return (json.dumps({**said, SEAL: seal}, indent=2) + "\n").encode()


def parse(kind: type[T], content: Any, path: Path) -> T:
    """JSON content as a dataclass; content of another form was written by another version."""
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(content)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise VersionError(
            f"'{path}' was written by another version of canet than this, {__version__} "
            f"({name}: {first['msg']}): use that version, or make it again"
        ) from error


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def mismatch(path: Path) -> ChecksumError:
    """The error for a file whose content is not what was written."""
    return ChecksumError(
        f"checksum mismatch: '{path}' was changed or damaged after it was written; restore it from "
        "a copy, or make it again"
    )


def read_file(path: Path) -> bytes:
    """The content of a file, or an error if there is none; only tensors may fill the memory."""
    try:
        return read_regular(path, None if path.suffix == ".safetensors" else MAX_JSON_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(f"'{path}' is missing") from error
    except OSError as error:
        raise CanetError(f"cannot read '{path}' ({error.strerror})") from error

"""JSON files that are read back: their content passes a schema, and some have a checksum inside."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from canet._version import __version__
from canet.errors import MAX_NAME_LENGTH, ChecksumError, VersionError
from canet.util.files import digest_of

T = TypeVar("T")
CHECKSUM = "sha256"  # entry of a JSON object: the SHA-256 of the other entries


def parse(kind: type[T], content: object, path: Path) -> T:
    """Convert JSON content to a dataclass; unexpected content is a `VersionError`."""
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(content)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = " ".join(".".join(map(str, first["loc"])).split())[:MAX_NAME_LENGTH]
        raise VersionError(
            f"'{path}' was written by another version of canet and this version, {__version__}, "
            f"cannot read it ({name}: {first['msg']}): use that version, or write it again"
        ) from error


@cache
def _adapter(kind: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def checksum_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object without its entry `CHECKSUM`."""
    entries = {name: value for name, value in content.items() if name != CHECKSUM}
    return digest_of(json.dumps(entries).encode())


def pack_json(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file with its checksum; the same for the same content."""
    return (json.dumps({**content, CHECKSUM: checksum_of(content)}, indent=2) + "\n").encode()


def checksum_mismatch(path: Path) -> ChecksumError:
    """Return the error for a file that has changed since it was written."""
    return ChecksumError(
        f"checksum mismatch: '{path}' has changed since it was written; restore it from a copy, or "
        "delete its folder and run the command that wrote it again"
    )

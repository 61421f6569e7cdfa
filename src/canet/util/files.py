"""Files that are either complete or absent: atomic writes, checksums, and where our cache is."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from canet.errors import CanetError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""What only a write can fail with, and nothing but room can mend."""
SEAL = "sha256"
"""The entry of a sealed JSON object that holds the digest of the others."""


class WriteError(CanetError, OSError):
    """A file could not be written: the disk is full, over its quota or read-only."""

    def __str__(self) -> str:
        return (
            f"cannot write '{self.filename}' ({self.strerror}): make room there, and the same "
            "command goes on"
        )


def cache_dir() -> Path:
    """Folder for downloads and processed copies: `CANET_CACHE`, or `~/.cache/canet`."""
    return Path(os.environ.get("CANET_CACHE") or Path.home() / ".cache" / "canet")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` and move it into place when the block succeeds.

    A reader sees the old file or the new one, never a part; a failed block leaves nothing, and what
    a killed process left is gone with the next write. A full disk is a `WriteError`.
    """
    with full_disk_told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{path.name}.{socket.gethostname()}."
        _clear_leftovers(path.parent, prefix)
        temporary = path.with_name(f"{prefix}{os.getpid()}.tmp")
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def full_disk_told(path: Path) -> Iterator[None]:
    """Turn what a full disk makes of writing `path` into a `WriteError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM or isinstance(error, WriteError):
            raise
        raise WriteError(error.errno, error.strerror, str(path)) from error


def _clear_leftovers(folder: Path, prefix: str) -> None:
    """Remove the temporaries with this prefix whose process is gone, where /proc can tell."""
    if Path("/proc/self").exists():
        for leftover in folder.glob(f"{glob.escape(prefix)}*.tmp"):
            pid = leftover.name.removeprefix(prefix).removesuffix(".tmp")
            if pid.isdigit() and not Path("/proc", pid).exists():
                leftover.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> str:
    """Write a file atomically; gives the SHA-256 of what it is meant to hold."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return digest_of(content)


def write_json(path: Path, content: Any) -> str:
    """Write `content` as indented JSON, atomically; gives the file's SHA-256."""
    return write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def pack_sealed(content: Mapping[str, Any]) -> bytes:
    """A JSON object as the bytes of a file, with the digest of all it says at its end."""
    said = json.dumps(content, indent=2)
    plain = json.loads(said)
    return (json.dumps({**plain, SEAL: digest_of(said.encode())}, indent=2) + "\n").encode()


def unpack_sealed(raw: bytes) -> dict[str, Any]:
    """The object that `pack_sealed` was given; a ValueError if any bit is another one."""
    content = json.loads(raw)
    if not isinstance(content, dict) or not isinstance(content.pop(SEAL, None), str):
        raise ValueError("not sealed")
    if pack_sealed(content) != raw:
        raise ValueError("changed after it was sealed")
    return content


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()

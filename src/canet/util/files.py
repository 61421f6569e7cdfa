"""Files that are either complete or absent: atomic writes, checksums, and where our cache is."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from canet.errors import CanetError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""Errors of a write that only more room, or another disk, can fix."""


class WriteError(CanetError, OSError):
    """A file could not be written: the disk is full, over its quota or read-only."""

    def __str__(self) -> str:
        return (
            f"cannot write '{self.filename}' ({self.strerror}): free some space and run the "
            "same command again to continue"
        )


def cache_dir() -> Path:
    """Folder for downloads and processed copies: `CANET_CACHE`, or `~/.cache/canet`."""
    try:
        return Path(os.environ.get("CANET_CACHE") or Path.home() / ".cache" / "canet")
    except RuntimeError as error:
        raise CanetError("this user has no home folder: set CANET_CACHE to a folder") from error


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` and move it into place when the block succeeds.

    A reader sees the old file or the new one, never a part. A failed block leaves nothing. What a
    killed process left is removed by the next write. A full disk is a `WriteError`.
    """
    with write_errors(path):
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
def write_errors(path: Path) -> Iterator[None]:
    """Turn the error of a full or read-only disk while writing `path` into a `WriteError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM or isinstance(error, WriteError):
            raise
        raise WriteError(error.errno, error.strerror, str(path)) from error


def _clear_leftovers(folder: Path, prefix: str) -> None:
    """Remove the temporaries with this prefix whose process has ended, where there is /proc."""
    if Path("/proc/self").exists():
        for leftover in folder.glob(f"{glob.escape(prefix)}*.tmp"):
            pid = leftover.name.removeprefix(prefix).removesuffix(".tmp")
            if pid.isdigit() and not Path("/proc", pid).exists():
                leftover.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> str:
    """Write a file atomically; gives the SHA-256 of `content`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return digest_of(content)


def write_json(path: Path, content: Any) -> str:
    """Write `content` as indented JSON, atomically; gives the file's SHA-256."""
    return write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()

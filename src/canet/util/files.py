"""Files: atomic writes, reads with bounds, checksums, and where our cache is."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from canet.errors import CanetError, InputError
from canet.util.memory import check_memory

MAX_JSON = 2**28
"""Bytes of a JSON file that is read."""
LEFTOVER, LEFTOVER_SECONDS = ".canet.tmp", 24 * 3600
"""How names of temporaries end, and the age at which their process must have ended."""

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
    killed process left in the folder is removed after a day. A full disk is a `WriteError`.
    """
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(path.parent)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{LEFTOVER}")
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


def _clear_leftovers(folder: Path) -> None:
    """Remove temporaries that have not been written to for a day."""
    for leftover in folder.glob(f".*{LEFTOVER}"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_SECONDS:
                leftover.unlink()


def write_bytes(path: Path, content: bytes) -> str:
    """Write a file atomically; gives the SHA-256 of `content`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return digest_of(content)


def write_json(path: Path, content: Any) -> str:
    """Write `content` as indented JSON, atomically; gives the file's SHA-256."""
    return write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def check_regular(path: Path, limit: int | None = None) -> None:
    """Reject pipes, devices and folders, and files that are too large to read.

    Args:
        path: The file, or a link to it.
        limit: Bytes that it may have; None: as many as there is free memory.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"'{path}' is not a regular file: name a file")
    if limit is None:
        check_memory(found.st_size, f"'{path}'")
    elif found.st_size > limit:
        raise InputError(
            f"'{path}' has {found.st_size / 2**20:,.0f} MiB, and at most {limit / 2**20:,.0f} MiB "
            "are read: use a smaller file"
        )


def read_regular(path: Path, limit: int | None = None) -> bytes:
    """The content of a regular file; `limit` as in `check_regular`."""
    check_regular(path, limit)
    return path.read_bytes()


def read_json(path: Path) -> Any:
    return json.loads(read_regular(path, MAX_JSON))


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    check_regular(path, sys.maxsize)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()

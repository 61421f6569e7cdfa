"""Atomic writes, reads with a size limit, checksums, and the cache folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canet.errors import CanetError, InputError
from canet.util.memory import check_memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

BYTES_IN_MEMORY = 2**28
"""Larger temporary arrays are in a file, so that the system can move them out of memory."""
MAX_JSON_BYTES = 2**28  # largest JSON file that is read
DONE = "done"  # name of the file that marks a complete folder; it is written last
TEMPORARY_SUFFIX = ".canet.tmp"
MAX_TEMPORARY_AGE = 24 * 3600
"""Seconds after which a temporary file is assumed to belong to a process that was killed."""
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""Error codes of a write to a disk that is full, over its quota or read-only."""


class WriteError(CanetError, OSError):
    """A file could not be written: the disk is full, over its quota or read-only."""

    def __str__(self) -> str:
        return (
            f"cannot write '{self.filename}' ({self.strerror}): free some disk space and run the "
            "same command again to resume"
        )


def cache_dir() -> Path:
    """Return the folder for downloads and processed data: `CANET_CACHE` or `~/.cache/canet`."""
    try:
        return Path(os.environ.get("CANET_CACHE") or Path.home() / ".cache" / "canet")
    except RuntimeError as error:
        raise CanetError(
            "the home folder of this user is unknown: set the environment variable CANET_CACHE "
            "to a folder"
        ) from error


def as_path(path: object) -> Path:
    """Return the path that a user passed as text or as a path."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"the path is a {type(path).__name__}: pass the name of a file or folder")
    return Path(path)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` and move it into place when the block succeeds.

    A reader sees the old file or the new file, never a part of it. The new file has the mode of the
    old one. If the block fails, the temporary file is removed. Temporary files of killed processes
    are removed after a day. A full disk raises a `WriteError`.
    """
    with write_errors(path):
        temporary = _temporary_path(path)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        try:
            if mode is not None:
                temporary.touch(0o600)  # until it has the mode of the file that it replaces
            yield temporary
            if mode is not None:
                temporary.chmod(mode)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Raise a `WriteError` if the disk is full or read-only while the block writes `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS or isinstance(error, WriteError):
            raise
        raise WriteError(error.errno, error.strerror, str(path)) from error


def scratch_array(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """Return an array without content: in memory, or if it is large in a file without a name."""
    import numpy as np

    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    if size <= BYTES_IN_MEMORY:
        return np.empty(shape, dtype)
    place = Path(tempfile.gettempdir())
    with tempfile.TemporaryFile(dir=place) as file, write_errors(place):
        if hasattr(os, "posix_fallocate"):  # on a full disk, writing to the map would end Python
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "w+", shape=shape)


def temporary_folder(path: Path) -> Path:
    """Create a hidden folder next to `path`, which the caller fills and renames to `path`."""
    temporary = _temporary_path(path)
    temporary.mkdir()
    return temporary


def _temporary_path(path: Path) -> Path:
    """Return a new name next to `path`; create its folder, or remove old temporary files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_old_temporaries(path.parent)
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")


def _remove_old_temporaries(folder: Path) -> None:
    """Remove temporary files and folders that have not been written to for a day."""
    for temporary in folder.glob(f".*{TEMPORARY_SUFFIX}"):
        with suppress(OSError):
            written = [path.stat().st_mtime for path in (temporary, *temporary.rglob("*"))]
            if time.time() - max(written) <= MAX_TEMPORARY_AGE:
                continue
            if temporary.is_dir():
                shutil.rmtree(temporary)
            else:
                temporary.unlink()


def write_bytes(path: Path, content: bytes) -> str:
    """Write a file atomically and return the SHA-256 of `content`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return digest_of(content)


def write_json(path: Path, content: object) -> str:
    """Write `content` atomically as indented JSON and return the SHA-256 of the file."""
    return write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def check_regular(path: Path, limit: int | None = None) -> None:
    """Reject pipes, devices, folders, and files with more than `limit` bytes; None: free memory."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"'{path}' is not a regular file: pass the path of a file")
    if limit is None:
        check_memory(found.st_size, f"'{path}'")
    elif found.st_size > limit:
        raise InputError(
            f"'{path}' has {found.st_size / 2**20:,.0f} MiB, but files of this kind may have at "
            f"most {limit / 2**20:,.0f} MiB: use a smaller file"
        )


def read_regular(path: Path, limit: int | None = None) -> bytes:
    """Return the content of a regular file; see `check_regular` for `limit`."""
    check_regular(path, limit)
    return path.read_bytes()


def read_json(path: Path) -> Any:
    return json.loads(read_regular(path, MAX_JSON_BYTES))


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    check_regular(path, sys.maxsize)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

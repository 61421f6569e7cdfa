"""The record of a finished run: the SHA-256 of each of its files, in the marker written last.

A marker without content is that of a run older than the records: finished, without checksums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from canet.store.tensors import damaged
from canet.util.files import full_disk_told, pack_sealed, unpack_sealed, write_bytes

MARKER, LOCK = "done", ".lock"

Record = dict[str, str]


def write_record(folder: Path, files: Mapping[str, str]) -> None:
    """Mark a run as finished with these files: name → SHA-256."""
    write_bytes(folder / MARKER, pack_record(files))


def pack_record(files: Mapping[str, str]) -> bytes:
    """A record as the bytes of its file, the same for the same files."""
    return pack_sealed({"files": dict(sorted(files.items()))})


def read_record(folder: Path) -> Record | None:
    """Name → SHA-256 of a finished run's files; None if it is older than the records."""
    path = folder / MARKER
    try:
        content = path.read_bytes()
        if not content:
            return None
        files: Record = dict(unpack_sealed(content)["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise damaged(path) from None
    return files


@contextmanager
def alone_with(folder: Path) -> Iterator[None]:
    """Keep other processes from a run's record for a moment, and leave no file behind.

    Whoever comes when the lock's file is gone makes another; by then the run is finished.
    """
    lock = FileLock(folder / LOCK)
    with full_disk_told(folder / MARKER):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
        with suppress(OSError):
            (folder / LOCK).unlink(missing_ok=True)

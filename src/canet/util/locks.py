"""One process at a time in a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from canet.util.files import full_disk_told

LOCK = ".lock"


@contextmanager
def alone_in(
    folder: Path, others: str = "another command works in", quiet: bool = False
) -> Iterator[None]:
    """Wait until no other process works in a folder, saying that `others` do, and keep others out.

    The lock is the operating system's: it is free as soon as its owner has ended, however.
    """
    lock = FileLock(folder / LOCK)
    try:
        with full_disk_told(folder / LOCK):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
    except Timeout:
        if not quiet:
            print(f"{others} '{folder}': waiting for it", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()

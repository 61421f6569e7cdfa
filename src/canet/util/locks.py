"""One process at a time in a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from canet.util.files import write_errors

LOCK = ".lock"


@contextmanager
def exclusive_lock(folder: Path, quiet: bool = False) -> Iterator[None]:
    """Wait until no other process holds the lock of a folder, then hold it during the block.

    The operating system frees the lock when its owner ends, however it ends.

    Args:
        folder: Created if missing.
        quiet: Do not print that another process is waited for.
    """
    lock = FileLock(folder / LOCK)
    try:
        with write_errors(folder / LOCK):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
    except Timeout:
        if not quiet:
            print(f"another process uses '{folder}': waiting for it", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()

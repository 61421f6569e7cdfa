"""A lock that lets one process at a time use a folder."""

import glob
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from canet.util.files import TEMPORARY_SUFFIX, write_errors

logger = logging.getLogger("canet")
LOCK = ".lock"


@contextmanager
def exclusive_lock(folder: Path, quiet: bool = False) -> Iterator[None]:
    """Hold the lock of a folder during the block; wait while another process holds it.

    The folder is created if it is missing. The operating system releases the lock when its process
    ends, even if it is killed. Unless `quiet`, print that this process is waiting.
    """
    lock = FileLock(folder / LOCK)
    try:
        with write_errors(folder / LOCK):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
    except Timeout:
        if not quiet:
            logger.warning("another process is using '%s': waiting for it to end", folder)
        while not lock.is_locked:
            try:
                lock.acquire()
            except FileNotFoundError:  # the other process has removed the folder
                folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        lock.release()


def remove_abandoned_folders(path: Path) -> None:
    """Remove the temporary folders of `path` whose lock no process holds, and print their names."""
    for folder in path.parent.glob(f".{glob.escape(path.name)}.*{TEMPORARY_SUFFIX}"):
        try:
            with FileLock(folder / LOCK, timeout=0):
                shutil.rmtree(folder)
        except (Timeout, OSError):
            continue
        logger.warning("removed '%s', which a killed process had left", folder)

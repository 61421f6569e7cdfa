"""Memory: keep what is freed, the largest use so far, and what is still free."""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
from pathlib import Path

from canet.errors import InputError

try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None  # type: ignore[assignment]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of glibc's mallopt
_KEPT_BYTES = 2**31 - 1
_STEP_BYTES = 2**28


def keep_freed_memory() -> None:
    """Let the process keep the memory that it frees, so that it need not ask the system again.

    Each epoch makes and frees the same large tensors. By default glibc gives each back to the
    system and gets fresh pages, cleared one by one, for the next, which takes longer than most
    operations on them. For whole processes only, so commands call it and the library does not;
    without glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_TOP_PAD, _STEP_BYTES)


def peak_resident_mb() -> float:
    """Largest resident memory of this process so far; NaN if the system does not report it."""
    if resource is None:
        return math.nan
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def free_memory() -> int | None:
    """Bytes that a process can still get; all of the machine's if the system does not say."""
    try:
        available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        if available:
            return int(available[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def check_memory(size: int, what: str) -> None:
    """Refuse `what` if its `size` in bytes is more than the memory that is free."""
    free = free_memory()
    if free is not None and size > free:
        raise InputError(
            f"{what} takes {size / 2**30:,.1f} GiB and {free / 2**30:,.1f} GiB of memory are free: "
            "use less data, or more memory"
        )

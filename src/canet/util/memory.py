"""Memory of the process and the machine: peak use, free memory, and reuse of freed memory."""

import ctypes
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from canet.errors import InputError

try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None  # type: ignore[assignment]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # parameters of glibc's mallopt
_MAX_KEPT_BYTES = 2**31 - 1
_GROWTH_BYTES = 2**28
PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def keep_freed_memory() -> None:
    """Let the process keep freed memory instead of returning it to the operating system.

    Each epoch allocates and frees the same large tensors. By default, glibc returns their memory
    to the system and gets new pages, which the system clears first. This takes longer than most
    operations on the tensors. The setting applies to the whole process, so the commands call this
    function and the library does not. Without glibc it has no effect.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, _MAX_KEPT_BYTES)
        mallopt(_TOP_PAD, _GROWTH_BYTES)


def return_freed_memory() -> None:
    """Return freed memory to the operating system, which glibc keeps for later otherwise."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def peak_resident_mb() -> float:
    """Return the peak resident memory of this process in MiB; NaN if the system has no figure."""
    if resource is None:
        return math.nan
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def free_memory() -> int | None:
    """Return the free memory in bytes, or else the total memory; None if both are unknown.

    On Linux, it is what the machine and the limits of Slurm, Docker or Kubernetes leave.
    """
    try:
        available = re.search(r"MemAvailable:\s+(\d+) kB", (PROC / "meminfo").read_text())
        if available:
            return min([int(available[1]) * 1024, *_left_by_limits()])
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _left_by_limits() -> Iterator[int]:
    """Yield the bytes that each control group of this process (version 2) can still use."""
    group = re.search(r"^0::/(.*)$", (PROC / "self/cgroup").read_text(), re.MULTILINE)
    folder = GROUPS / (group[1] if group else "")
    for place in (folder, *folder.parents):
        limit = place / "memory.max"
        if limit.exists() and (most := limit.read_text().strip()) != "max":
            stat = (place / "memory.stat").read_text()
            files = re.search(r"^inactive_file (\d+)", stat, re.MULTILINE)
            used = int((place / "memory.current").read_text()) - (int(files[1]) if files else 0)
            yield max(0, int(most) - used)


def check_memory(size: int, what: str) -> None:
    """Raise an `InputError` about `what` if its `size` in bytes exceeds the free memory."""
    free = free_memory()
    if free is not None and size > free:
        raise InputError(
            f"{what} needs {size / 2**30:,.1f} GiB of memory, but only {free / 2**30:,.1f} GiB are "
            "free: use a smaller graph or a machine with more memory"
        )

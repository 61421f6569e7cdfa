"""Memory of our own processes: what is freed is kept for the next epoch."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of glibc's mallopt
_KEPT_BYTES = 2**31 - 1
_STEP_BYTES = 2**28


def keep_freed_memory() -> None:
    """Let the process keep the memory that it frees, and not ask the system for it anew.

    Each epoch makes and frees the same large tensors. By default glibc gives each back to the
    system and gets fresh pages, cleared one by one, for the next, which takes longer than most
    operations on them. For whole processes only, so commands call it and the library does not;
    nothing happens where there is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_TOP_PAD, _STEP_BYTES)

"""Every folder below a folder, including those behind links: where runs are searched for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from canet.errors import InputWarning


def _warn(error: OSError) -> None:
    warnings.warn(
        f"cannot read '{error.filename}' ({error.strerror}): runs below it are left out",
        InputWarning,
        stacklevel=2,
    )


def folders_below(root: Path, unreadable: Callable[[OSError], None] = _warn) -> Iterator[Path]:
    """`root` and the folders below it by name, links followed, each folder once; no hidden ones.

    Args:
        root: Where to begin; a file or a missing folder gives nothing.
        unreadable: Called for each folder whose content cannot be listed.
    """

    def report(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            unreadable(error)

    seen = set()
    for path, names, _ in os.walk(root, onerror=report, followlinks=True):
        place = os.path.realpath(path)
        if place in seen:
            names.clear()
            continue
        seen.add(place)
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield Path(path)

"""List all folders below a folder, including links, to find runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from canet.errors import warn_user


def _warn(error: OSError) -> None:
    warn_user(
        f"cannot read the folder '{error.filename}' ({error.strerror}): its runs are left out"
    )


def folders_below(root: Path, unreadable: Callable[[OSError], None] = _warn) -> Iterator[Path]:
    """Yield `root` and all folders below it, sorted by name.

    Links are followed, each folder is yielded once, and hidden folders are left out. Nothing is
    yielded if `root` is a file or missing. `unreadable` is called for a folder that cannot be read.
    """

    def report(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            unreadable(error)

    seen = set()
    for path, names, _ in os.walk(root, onerror=report, followlinks=True):
        target = os.path.realpath(path)
        if target in seen:
            names.clear()
            continue
        seen.add(target)
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield Path(path)

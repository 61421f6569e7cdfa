"""Every folder below a folder, those behind links too: where runs are looked for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from canet.errors import InputWarning


def _warn(error: OSError) -> None:
    warnings.warn(
        f"'{error.filename}' cannot be read ({error.strerror}): what lies below it is left out",
        InputWarning,
        stacklevel=2,
    )


def folders_below(root: Path, unreadable: Callable[[OSError], None] = _warn) -> Iterator[Path]:
    """`root` and the folders below it by name, links followed, each once however it is reached.

    Args:
        root: Where to begin; nothing comes of a file, nor of what is not there.
        unreadable: Called for each folder whose content cannot be listed.
    """

    def complain(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            unreadable(error)

    seen = set()
    for path, names, _ in os.walk(root, onerror=complain, followlinks=True):
        place = os.path.realpath(path)
        if place in seen:
            names.clear()
            continue
        seen.add(place)
        names.sort()
        yield Path(path)

"""Whether anybody else is at a search: only then may a trial under way still end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ModuleNotFoundError:  # on Windows, where nobody can be told to be alone
    fcntl = None  # type: ignore[assignment]


class Presence:
    """That a command works on a journal, told to others by a lock which ends with its process.

    Args:
        file: The journal; None for a database, whose users cannot be told.
    """

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file if fcntl else None
        self._share()

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody else is known to work on it; then nobody begins to during the block."""
        if self._file is None:
            yield False
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError:  # others hold it, or the disk has no locks
            alone = False
        try:
            yield alone
        finally:
            self._share()

    def _share(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_SH)


@contextmanager
def present_at(place: str) -> Iterator[Presence]:
    """Be present at the journal at a path, or the database at a URL."""
    if "://" in place:
        yield Presence(None)
    else:
        with Path(place).open("ab") as file:
            yield Presence(file)

"""Optuna's journal in a file, for disks that fill up and files that were damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from canet.errors import CanetError
from canet.util.files import write_errors

LOCK_SECONDS = 10  # after which the lock of a process that died is taken; it is held for moments
ENTRY = b'{"op_code":'
"""How every line begins."""


def open_journal(path: Path) -> JournalStorage:
    """The journal at a path; a damaged one is refused with the line."""
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        journal = Journal(path)
        journal.check_lines()
    try:
        return JournalStorage(journal)
    except (CanetError, OSError):
        raise
    except Exception:  # whatever Optuna makes of an entry that it would not have written
        raise journal.damaged(journal.line) from None


class Journal(JournalFileBackend):
    """Lines of JSON, of which no writer finds a torn one and no reader passes over a wrong one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        """The last that was read."""
        super().__init__(str(path), _WholeLines(path))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with write_errors(self.path):
            super().append_logs(logs)

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        self.line = log_number_from
        try:
            for log in super().read_logs(log_number_from):
                self.line += 1
                yield log
        except (ValueError, RecursionError):
            raise self.damaged(self.line + 1) from None

    def check_lines(self) -> None:
        """Refuse what is no JSON; Optuna passes over it in the last line, and writes on."""
        *lines, torn = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                json.loads(line)
            except (ValueError, RecursionError):
                raise self.damaged(number) from None
        if not torn.startswith(ENTRY[: len(torn)]):
            raise self.damaged(len(lines) + 1)

    def damaged(self, line: int) -> CanetError:
        """What is said of a line that nobody can use."""
        if line <= 1:
            return CanetError(
                f"'{self.path}' is not a journal of a search: choose another --out or --storage"
            )
        return CanetError(
            f"'{self.path}' is damaged in line {line}: delete that line and all after it, and the "
            "same command goes on from there"
        )


class _WholeLines(JournalFileOpenLock):
    """Optuna's lock of a journal; who takes it finds whole lines.

    What a write left that was cut off, by a kill or a full disk, is dropped: Optuna would write on
    in that line.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), LOCK_SECONDS)
        self._path = path

    def acquire(self) -> bool:
        taken = super().acquire()
        try:
            self._drop_torn_line()
        except BaseException:
            self.release()
            raise
        return taken

    def _drop_torn_line(self) -> None:
        with self._path.open("r+b") as file:
            if not file.seek(0, os.SEEK_END):
                return
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)

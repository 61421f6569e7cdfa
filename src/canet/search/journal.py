"""The journal of a search: a file with all its trials."""

from __future__ import annotations

import os
from pathlib import Path

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from canet.errors import CanetError
from canet.util.files import read_regular, write_errors

ENTRY = b'{"op_code":'
"""Beginning of every line of a journal."""


def open_journal(path: Path) -> JournalStorage:
    """Open the journal at a path, or begin a new one."""
    path = path.absolute()  # a lock of a killed process expires only if its link has a valid target
    try:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                _drop_incomplete_line(path)
            return JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CanetError(
            f"'{path}' is not the journal of a search, or one of its lines was changed ({error}): "
            "choose another --out or --storage"
        ) from error


def _drop_incomplete_line(path: Path) -> None:
    """Remove an incomplete last line, left by a full disk; Optuna would append to this line."""
    content = read_regular(path)
    if not content.startswith(ENTRY[: len(content)]):
        raise ValueError("its first line was not written by Optuna")
    os.truncate(path, content.rfind(b"\n") + 1)

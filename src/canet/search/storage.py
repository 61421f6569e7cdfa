"""Storages for trials: a journal file or a database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from canet.errors import CanetError, first_line
from canet.util.files import read_regular, write_errors

ENTRY = b'{"op_code":'
"""Beginning of every line of a journal."""


def open_storage(location: str) -> BaseStorage:
    """Open the journal at a path, or the database at a URL."""
    return _open_database(location) if "://" in location else _open_journal(Path(location))


@contextmanager
def storage_errors(location: str) -> Iterator[None]:
    """Raise a `CanetError` if the storage fails during a search; a URL may have a password."""
    try:
        with write_errors(Path(location)):
            yield
    except StorageInternalError as error:
        raise CanetError(
            f"the storage of the trials failed ({first_line(error.__cause__ or error)}): fix it "
            "and run the same command again to resume"
        ) from error


def _open_journal(path: Path) -> BaseStorage:
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


def _open_database(url: str) -> BaseStorage:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return RDBStorage(url)
    except (SQLAlchemyError, ImportError, StorageInternalError) as error:
        raise CanetError(
            f"cannot open the database of --storage ({first_line(error)}): check the URL"
        ) from error

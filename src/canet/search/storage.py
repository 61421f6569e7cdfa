"""Storages for trials: a journal file or a database; other machines use gRPC to access it."""

from __future__ import annotations

import os
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import (
    BaseStorage,
    GrpcStorageProxy,
    JournalStorage,
    RDBStorage,
    get_storage,
    run_grpc_proxy_server,
)
from optuna.storages.journal import JournalFileBackend

from canet.errors import CanetError, first_line
from canet.util.files import read_regular, write_errors

SERVER_TIMEOUT = 60
"""Seconds that a worker waits for the machine with the storage."""
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


def serve(storage: BaseStorage) -> BaseStorage:
    """Serve a storage until this process ends; return a storage that other machines can use."""
    if find_spec("grpc") is None:
        raise CanetError("--ray requires grpcio: run pip install -e '.[ray]' in a clone of canet")
    host = _local_address()
    with socket.create_server((host, 0)) as free:
        port = free.getsockname()[1]
    warnings.simplefilter("ignore", ExperimentalWarning)
    address = {"host": host, "port": port}
    server = threading.Thread(
        target=run_grpc_proxy_server, args=(get_storage(storage),), kwargs=address, daemon=True
    )
    server.start()
    return GrpcStorageProxy(**address)


def wait_for_storage(storage: BaseStorage) -> None:
    """Wait until the server of a storage on another machine responds."""
    if isinstance(storage, GrpcStorageProxy):
        try:
            storage.wait_server_ready(SERVER_TIMEOUT)
        except ConnectionError as error:
            raise CanetError(
                "a worker cannot connect to the machine that runs canet search: allow connections "
                "to it in the firewall"
            ) from error


def _local_address() -> str:
    """Return the address of this machine in its network, without sending any data."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(route.getsockname()[0])


def _open_journal(path: Path) -> BaseStorage:
    path = path.absolute()  # workers may have another working folder
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

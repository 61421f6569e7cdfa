"""Where trials are kept: a journal file or a database, which other machines reach by gRPC."""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
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
from canet.util.processes import end_with_parent

SERVER_SECONDS = 60  # that a worker waits for the machine that keeps the trials
ENTRY = b'{"op_code":'
"""How every line of a journal begins."""


def open_storage(place: str) -> BaseStorage:
    """The journal at a path, or the database at a URL."""
    return _open_database(place) if "://" in place else _open_journal(Path(place).absolute())


@contextmanager
def storage_errors(place: str) -> Iterator[None]:
    """Turn a storage that fails in the middle of a search into one line."""
    try:
        with write_errors(Path(without_password(place))):
            yield
    except StorageInternalError as error:
        cause = first_line(error.__cause__ or error)
        raise CanetError(
            without_password(
                f"the storage '{place}' failed ({cause}): fix it, and the same command continues"
            )
        ) from error


def without_password(text: str) -> str:
    """A text with SQL URLs, which it shows without their passwords."""
    text = re.sub(r"(?<=://)([^\s:/@]*):\S*@", r"\1:***@", text)
    return re.sub(r"(?i)(?<=[?&])(\w*pass\w*)=[^\s&']*", r"\1=***", text)


@contextmanager
def serve(storage: BaseStorage) -> Iterator[BaseStorage]:
    """A storage for other machines: it asks a server on this one, which has the given storage."""
    if find_spec("grpc") is None:
        raise CanetError("--ray needs grpcio: pip install -e '.[ray]' in a clone of canet")
    host = _own_address()
    with socket.create_server((host, 0)) as free:
        port = free.getsockname()[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        proxy = GrpcStorageProxy(host=host, port=port)
    # Optuna's server ends only with its process.
    server = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(storage, host, port, os.getpid()), daemon=True
    )
    server.start()
    try:
        yield proxy
    finally:
        server.kill()
        server.join()


def reach(storage: BaseStorage) -> None:
    """Wait until a storage on another machine answers."""
    if isinstance(storage, GrpcStorageProxy):
        try:
            storage.wait_server_ready(SERVER_SECONDS)
        except ConnectionError as error:
            raise CanetError(
                "a worker cannot reach the machine that searches: open the firewall for it"
            ) from error


def _serve(storage: BaseStorage, host: str, port: int, parent: int) -> None:
    end_with_parent(parent)
    warnings.simplefilter("ignore", ExperimentalWarning)
    run_grpc_proxy_server(get_storage(storage), host=host, port=port)


def _own_address() -> str:
    """The address by which other machines reach this one; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(route.getsockname()[0])


def _open_journal(path: Path) -> BaseStorage:
    try:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                _drop_torn_line(path)
            return JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CanetError(
            f"'{path}' is not a journal of a search, or a line of it was changed ({error}): "
            "choose another --out or --storage"
        ) from error


def _drop_torn_line(path: Path) -> None:
    """Drop the part of a line that a full disk or a kill cut off: Optuna would append to it."""
    content = read_regular(path)
    if not content.startswith(ENTRY[: len(content)]):
        raise ValueError("its first line is not one of Optuna's")
    end = content.rfind(b"\n") + 1
    torn = content[end:]
    if torn and torn.startswith(ENTRY[: len(torn)]):
        os.truncate(path, end)


def _open_database(url: str) -> BaseStorage:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return RDBStorage(url)
    except (SQLAlchemyError, ImportError, StorageInternalError) as error:
        message = f"cannot open the storage '{url}' ({first_line(error)}): check its URL"
        raise CanetError(without_password(message)) from error

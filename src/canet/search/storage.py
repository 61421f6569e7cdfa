"""Where trials are kept: a journal file or a database, which other machines reach by gRPC."""

from __future__ import annotations

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
    RDBStorage,
    get_storage,
    run_grpc_proxy_server,
)

from canet.errors import CanetError
from canet.runs.engine import Processes
from canet.search.journal import open_journal

SERVER_SECONDS = 60  # that a worker waits for the machine that keeps the trials


def open_storage(place: str) -> BaseStorage:
    """The journal at a path, or the database at a URL."""
    if "://" in place:
        return _open_database(place)
    return open_journal(Path(place).absolute())


@contextmanager
def failure_told() -> Iterator[None]:
    """Turn a failure of a database in the middle of a search into one line."""
    try:
        yield
    except StorageInternalError as error:
        cause = str(error.__cause__ or error).splitlines()[0]
        raise CanetError(
            f"the storage failed ({cause}): mend it, and the same command goes on"
        ) from None


@contextmanager
def serve(storage: BaseStorage) -> Iterator[BaseStorage]:
    """A storage that other machines can be sent: it asks a server here, which has the given one."""
    if find_spec("grpc") is None:
        raise CanetError("--ray needs grpcio: pip install -e '.[ray]' in the checkout of canet")
    host = _own_address()
    with socket.create_server((host, 0)) as free:
        port = free.getsockname()[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        proxy = GrpcStorageProxy(host=host, port=port)
    with Processes(1, threads=None) as server:  # Optuna's server ends only with its process
        server.submit(0, _serve, storage, host, port)
        yield proxy


def reach(storage: BaseStorage) -> None:
    """Wait until a storage of another machine answers."""
    if isinstance(storage, GrpcStorageProxy):
        try:
            storage.wait_server_ready(SERVER_SECONDS)
        except ConnectionError:
            raise CanetError(
                "a worker cannot reach the machine that searches: let it through the firewall"
            ) from None


def _serve(storage: BaseStorage, host: str, port: int) -> None:
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


def _open_database(url: str) -> BaseStorage:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return RDBStorage(url)
    except (SQLAlchemyError, ImportError, StorageInternalError) as error:
        cause = str(error).splitlines()[0]
        raise CanetError(f"cannot open the storage '{url}' ({cause}): check its URL") from None

"""A Ray cluster as a pool: tasks run wherever it has room, on machines that share no disk."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from typing import Any, TypeVar

from canet.errors import CanetError

try:
    import ray
except ModuleNotFoundError as error:
    raise CanetError("--ray needs Ray: pip install -e '.[ray]' in a clone of canet") from error
from ray.exceptions import RayError, RayTaskError

T = TypeVar("T")
MAX_RETRIES = 3  # of a task whose node or process died
SECONDS_TO_ANSWER = 5.0


class Cluster:
    """Tasks of a Ray cluster, each with its share of the CPUs or of a GPU.

    Ray repeats a task elsewhere when its node dies.

    Args:
        address: Address of the cluster. `auto`: the one that RAY_ADDRESS names or that runs here.
            None is started: the ports of Ray listen on every network.
        size: Tasks at a time; 1 means as many as the cluster has GPUs or else CPUs.
        device: `cpu` leaves GPUs alone.
    """

    remote = True

    def __init__(self, address: str, size: int, device: str) -> None:
        _connect(address)
        resources = ray.cluster_resources()
        gpus = 0 if device == "cpu" else int(resources.get("GPU", 0))
        self.size = size if size > 1 else max(1, gpus or int(resources.get("CPU", 1)))
        self._task: Any = ray.remote(_call).options(
            num_cpus=0 if gpus else 1,
            num_gpus=min(1.0, gpus / self.size),
            max_retries=MAX_RETRIES,
        )

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        answer: Future[T] = Future()
        reference = self._task.remote(function, arguments)
        reference.future().add_done_callback(lambda done: _pass_on(done, answer))
        return answer

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()


def _connect(address: str) -> None:
    _check(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address=address, **quietly)
    except (ConnectionError, ValueError) as error:
        raise _no_cluster(address, error) from error


def _check(address: str) -> None:
    """Reject an address where nothing listens; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER).close()
    except OSError as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> CanetError:
    return CanetError(
        f"no Ray cluster at '{address}' ({error}): check its address, start one with "
        "`ray start --head`, or use --jobs for processes of this machine"
    )


def _call(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    """What a node does: one thread, because its share is one CPU."""
    import torch

    torch.set_num_threads(1)
    return function(*arguments)


def _pass_on(done: Future[T], answer: Future[T]) -> None:
    error = done.exception()
    if isinstance(error, RayTaskError):
        error = error.cause if isinstance(error.cause, Exception) else error
    elif isinstance(error, RayError):
        error = BrokenExecutor(f"{type(error).__name__}: {error}")
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())

"""A Ray cluster as a pool; its machines need no shared disk."""

import os
import socket
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Any, TypeVar

from canet.errors import CanetError

try:
    import ray
except ModuleNotFoundError as error:
    raise CanetError(
        "--ray requires Ray: run pip install -e '.[ray]' in a clone of canet"
    ) from error
from ray.exceptions import RayError, RayTaskError

T = TypeVar("T")
MAX_RETRIES = 3  # how often Ray repeats a task whose machine or process died
CONNECT_TIMEOUT = 5.0  # seconds


class Cluster(AbstractContextManager):
    """A pool on a running Ray cluster; each task gets a share of the CPUs or GPUs.

    If the machine of a task dies, Ray repeats the task on another one. The class never starts a
    cluster, because the ports of Ray would be open to every network.

    Args:
        address: Address of the cluster, or `auto` for the cluster in the environment variable
            RAY_ADDRESS or the one that runs on this machine.
        size: Number of tasks at a time; 1 means the number of GPUs of the cluster, or of CPUs if
            it has no GPU.
        device: With `cpu` no GPU is used.
    """

    remote = True

    def __init__(self, address: str, size: int, device: str) -> None:
        self._connects = not ray.is_initialized()  # else the connection is the caller's
        if self._connects:
            _connect(address)
        resources = ray.cluster_resources()
        gpus = 0 if device == "cpu" else int(resources.get("GPU", 0))
        self.size = size if size > 1 else max(1, gpus or int(resources.get("CPU", 1)))
        self._task: Any = ray.remote(_call).options(
            num_cpus=0 if gpus else 1, num_gpus=min(1.0, gpus / self.size), max_retries=MAX_RETRIES
        )

    def share(self, value: T) -> Callable[[], T]:
        """Send a value to the cluster; return a function that gets it once per worker."""
        return partial(_get_shared, ray.put(value))

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        answer: Future[T] = Future()
        reference = self._task.remote(function, arguments)
        reference.future().add_done_callback(lambda done: _forward_result(done, answer))
        return answer

    def __exit__(self, *_: object) -> None:
        if self._connects:
            ray.shutdown()


def _connect(address: str) -> None:
    """Connect to a cluster; reject at once what Ray would try for minutes, or would start itself.

    Ray starts a cluster for another word than `auto`, such as `local`.
    """
    server = (os.environ.get("RAY_ADDRESS") or address) if address == "auto" else address
    host, _, port = server.removeprefix("ray://").rpartition(":")
    if server != "auto" and not (host and port.isdigit()):
        raise CanetError(
            f"'{server}' is not the address of a Ray cluster: pass HOST:PORT, or auto for a "
            "running cluster; canet does not start one"
        )
    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if server != "auto":
            socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()
        ray.init(address=address, **quietly)
    except (OSError, ValueError) as error:
        raise CanetError(
            f"there is no Ray cluster at '{server}' ({error}): check the address, start a cluster "
            "with `ray start --head`, or use --jobs to run on this machine"
        ) from error


def _call(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    """Call a function on a machine of the cluster, with one thread for its one CPU."""
    import torch

    torch.set_num_threads(1)
    return function(*arguments)


@lru_cache(maxsize=1)
def _get_shared(reference: ray.ObjectRef) -> Any:
    return ray.get(reference)


def _forward_result(done: Future[T], answer: Future[T]) -> None:
    error = done.exception()
    if isinstance(error, RayTaskError):
        error = error.cause if isinstance(error.cause, Exception) else error
    elif isinstance(error, RayError):
        error = BrokenExecutor(f"{type(error).__name__}: {error}")
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())

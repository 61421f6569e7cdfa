"""Prepare the next batches in another thread while the caller trains on this one."""

from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from queue import Queue
from threading import Event, Thread
from typing import Any, TypeVar

import torch

T = TypeVar("T")
AHEAD = 2  # number of batches that are prepared ahead
_END = object()


@cache
def cached_stream(device: torch.device, user: object) -> torch.cuda.Stream:
    """Return the stream of a user; libraries keep a workspace, and torch memory, for each one."""
    return torch.cuda.Stream(device)


def prefetched(items: Iterator[T], device: torch.device) -> Iterator[T]:
    """Yield the items, which are computed in another thread and, on a GPU, in another stream.

    Items do not depend on the thread. An error in the thread is raised here.
    """
    ready: Queue[Any] = Queue(AHEAD)
    stopped = Event()
    # Memory of a used item may be reused by the stream of the thread only after the work on it.
    used: deque[tuple[Any, torch.cuda.Event]] = deque()
    stream = None
    if device.type == "cuda":
        stream = cached_stream(device, "batches")
        stream.wait_stream(torch.cuda.current_stream(device))

    def prepare() -> None:
        try:
            with torch.cuda.stream(stream) if stream else nullcontext():
                for item in items:
                    ready.put((item, stream.record_event() if stream else None))
                    if stopped.is_set():
                        return
                    while used and stream:
                        stream.wait_event(used.popleft()[1])
            ready.put(_END)
        except BaseException as error:  # raised again by the caller's thread
            ready.put(error)

    thread = Thread(target=prepare, daemon=True)
    thread.start()
    try:
        while (found := ready.get()) is not _END:
            if isinstance(found, BaseException):
                raise found
            item, event = found
            if event is not None:
                torch.cuda.current_stream(device).wait_event(event)
            yield item
            if event is not None:
                used.append((item, torch.cuda.current_stream(device).record_event()))
    finally:
        stopped.set()
        while thread.is_alive():  # it may be waiting for a place
            while not ready.empty():
                ready.get_nowait()
            thread.join(0.01)
        if stream:  # the next items may be for another stream
            stream.wait_stream(torch.cuda.current_stream(device))

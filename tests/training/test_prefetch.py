"""Batches that another thread prepares."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from canet.training import prefetch
from canet.training.prefetch import AHEAD, prefetched

CPU = torch.device("cpu")


def test_items_keep_their_order_and_come_from_another_thread() -> None:
    found = list(prefetched(((i, threading.get_ident()) for i in range(20)), CPU))
    assert [i for i, _ in found] == list(range(20))
    assert {thread for _, thread in found}.isdisjoint({threading.get_ident()})


def test_only_some_items_are_prepared_ahead() -> None:
    prepared: list[int] = []

    def items() -> Iterator[int]:
        for i in range(100):
            prepared.append(i)
            yield i

    found = prefetched(items(), CPU)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]
    assert len(prepared) <= AHEAD + 3


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    found = prefetched(items(), CPU)
    assert next(found) == 1
    with pytest.raises(ValueError, match="no more"):
        next(found)


class FakeStream:
    """Records the streams and events that it waits for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waits: list[str] = []

    def wait_stream(self, other: FakeStream) -> None:
        self.waits.append(other.name)

    def wait_event(self, event: str) -> None:
        self.waits.append(event)

    def record_event(self) -> str:
        return f"event of {self.name}"


def test_the_stream_of_the_thread_waits_for_the_caller_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise items for another stream could overwrite the last ones, which are still read."""
    own, callers = FakeStream("own"), FakeStream("caller's")
    monkeypatch.setattr(prefetch, "cached_stream", lambda device, user: own)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: callers)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    assert list(prefetched(iter(range(5)), torch.device("cuda"))) == list(range(5))
    assert callers.waits == ["event of own"] * 5
    assert own.waits[0] == own.waits[-1] == "caller's"
    assert set(own.waits[1:-1]) <= {"event of caller's"}

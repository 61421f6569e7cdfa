"""Torch's global state, fixed for a block: precision, random generators, number of threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def single_precision() -> Iterator[None]:
    """Make tensors in single precision, whatever the caller's default is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def seeded(seed: int, device: torch.device, threads: int | None = None) -> Iterator[None]:
    """Run a block with fixed state, and put the caller's state back afterwards.

    The state belongs to the whole process, so blocks in several threads take turns.

    Args:
        seed: Of torch's generators.
        device: Where the block computes.
        threads: Of torch, BLAS and OpenMP; None: as many as the caller has set.
    """
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with _ONE_AT_A_TIME, ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(single_precision())
        if threads is not None:
            stack.enter_context(limited_threads(threads))
        torch.manual_seed(seed)
        yield


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Compute with so many threads; results depend on their number in the last bits."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before = torch.get_num_threads()
    with threadpool_limits(threads):
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

"""Launch a kernel, or compile all kernels of a step in parallel before the step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

COMPILING = 0.8
"""Seconds that a kernel takes which is not in Triton's cache, with Triton's own set-up."""


class _FoundInCacheError(Exception):
    """The first kernel was in the cache, and so are the others: no need to compile them ahead."""


_jobs: dict[Any, Future[Any]] | None = None
_pool = ThreadPoolExecutor()


def launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., Any]:
    """`kernel[grid]`, to be called with the kernel's arguments."""
    if _jobs is None:
        run: Callable[..., Any] = kernel[grid]
        return run
    device, jobs = torch.cuda.current_device(), _jobs

    def compile_once(*args: Any, **options: Any) -> None:
        kinds = tuple((a.dtype, a.shape) if isinstance(a, Tensor) else a for a in args)
        key = kernel, kinds, tuple(options.items())
        if key not in jobs:
            begin = time.perf_counter()
            jobs[key] = _pool.submit(_build, kernel, grid, device, args, options)
            if len(jobs) == 1:  # Triton sets itself up, which threads would do side by side
                jobs[key].result()
                if time.perf_counter() - begin < COMPILING:
                    raise _FoundInCacheError

    return compile_once


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Compile the kernels that are launched in this block, in threads, and do not run them.

    One after the other they take seconds where Triton's cache is empty; where it is not, the block
    ends at its first kernel. What the block computes must not be used.
    """
    global _jobs
    jobs: dict[Any, Future[Any]] = {}
    _jobs = jobs
    try:
        yield
    except _FoundInCacheError:
        pass
    finally:
        _jobs = None
    for job in jobs.values():
        job.result()


def _build(kernel: Any, grid: tuple[int, ...], device: int, args: Any, options: Any) -> None:
    """Compile a kernel, and load it on the device."""
    torch.cuda.set_device(device)
    kernel.warmup(*args, grid=grid, **options)[grid]

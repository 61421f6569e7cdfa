"""Launch kernels, or compile all kernels of a training step in parallel before it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
import triton
from torch import Tensor
from triton import JITFunction

_jobs: dict[Any, Future[Any]] | None = None
_pool = ThreadPoolExecutor()


def launch(kernel: JITFunction, grid: tuple[int, ...]) -> Callable[..., Any]:
    """Return `kernel[grid]`, to be called with the kernel's arguments."""
    if _jobs is None:
        return partial(_run, kernel[grid])
    device, jobs = torch.cuda.current_device(), _jobs

    def compile_once(*args: object, **options: object) -> None:
        kinds = tuple((a.dtype, a.shape) if isinstance(a, Tensor) else a for a in args)
        key = kernel, kinds, tuple(options.items())
        if key not in jobs:
            set_up(device).result()  # otherwise each thread would do it
            jobs[key] = _pool.submit(_build, kernel, grid, device, args, options)

    return compile_once


def _run(kernel: Callable[..., Any], *args: object, **options: object) -> None:
    """Run a kernel on the GPU of its arguments; Triton would use the current one."""
    index = next((a.get_device() for a in args if isinstance(a, Tensor) and a.is_cuda), None)
    if index is None or index == torch.cuda.current_device():
        kernel(*args, **options)
        return
    with torch.cuda.device(index):
        kernel(*args, **options)


@cache
def set_up(device: int) -> Future[Any]:
    """Initialise Triton in a background thread by compiling an empty kernel."""
    return _pool.submit(_build, _nothing, (1,), device, (), {})


@triton.jit
def _nothing() -> None:
    pass


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Compile the kernels that are launched inside this context in parallel, without running them.

    With an empty Triton cache, compiling them one after another takes seconds. Do not use the
    values that are computed inside the context.
    """
    global _jobs
    jobs: dict[Any, Future[Any]] = {}
    _jobs = jobs
    try:
        yield
    finally:
        _jobs = None
    for job in jobs.values():
        job.result()


def _build(
    kernel: JITFunction, grid: tuple[int, ...], device: int, args: tuple, options: dict
) -> None:
    """Compile a kernel and load it on the device."""
    torch.cuda.set_device(device)
    kernel.warmup(*args, grid=grid, **options)[grid]

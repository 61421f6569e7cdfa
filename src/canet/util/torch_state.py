"""Context managers that set the global state of torch: precision, random generators, threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

_STATE_LOCK = threading.RLock()
_limit: int | None = None  # the number of threads in the block of `limited_threads` that is running


@contextmanager
def single_precision() -> Iterator[None]:
    """Create tensors in single precision, whatever the caller's default is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def seeded(seed: int, device: torch.device, threads: int | None = None) -> Iterator[None]:
    """Run a block with a fixed seed and precision, and restore the caller's state afterwards.

    The state is global, so only one thread at a time can run such a block. `threads` are those of
    torch and OpenMP; None for the number that the caller has set.
    """
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    limited = nullcontext() if threads is None else limited_threads(threads)
    with _STATE_LOCK, torch.random.fork_rng(devices=devices), single_precision(), limited:
        # torch.manual_seed also seeds all other devices, which takes as long as a small epoch.
        torch.manual_seed(seed) if devices else torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Limit the number of threads of torch and OpenMP; results depend on it in the last bits.

    The BLAS of NumPy and SciPy gets one thread: others would wait for work in a loop, and slow
    those of torch down. Inside a block with the same number this does nothing, because the search
    for these libraries takes milliseconds.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    global _limit
    with _STATE_LOCK:
        limit, before = _limit, torch.get_num_threads()
        if threads == limit == before:
            yield
            return
        with threadpool_limits({"openmp": threads, "blas": 1}):
            torch.set_num_threads(threads)
            _limit = threads
            try:
                yield
            finally:
                torch.set_num_threads(before)
                _limit = limit


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Let a GPU round the factors of fp32 products to 11 bits (TF32) inside the block."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda" and before == "highest":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)

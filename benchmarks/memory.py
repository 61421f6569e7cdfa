"""Peak memory of a measurement, and a memory limit that protects the machine."""

from __future__ import annotations

import gc
from pathlib import Path

import torch

from canet.util.memory import peak_resident_mb

STATUS = Path("/proc/self/status")
AVAILABLE = Path("/proc/meminfo")
MARGIN_MB = 1024  # left to the rest of the machine


class Meter:
    """Peak memory since its creation: allocated on the GPU, or resident in this process.

    `level_mb` is the memory in use at creation, before a model is built.
    """

    def __init__(self, device: torch.device) -> None:
        gc.collect()
        self._device = device
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self.level_mb = torch.cuda.memory_allocated(device) / 2**20
        else:
            _reset_peak()
            self.level_mb = _field_mb(STATUS, "VmRSS") or self.peak_mb()

    def peak_mb(self) -> float:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**20
        return _field_mb(STATUS, "VmHWM") or peak_resident_mb()


def cap_memory() -> float | None:
    """Limit this process to the available memory; return the MB that it may still allocate.

    Above the limit, an allocation fails with an error. Without it, the system would swap or kill
    the process. The limit is on address space, the only limit that needs no privileges.
    """
    spare, mapped = _field_mb(AVAILABLE, "MemAvailable"), _field_mb(STATUS, "VmSize")
    if spare is None or mapped is None:
        return None
    allowance = max(0.0, spare - MARGIN_MB)
    limit = int((mapped + allowance) * 2**20)
    import resource  # exists on every system with /proc

    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return allowance


def out_of_memory(error: BaseException) -> bool:
    """Whether an error is a failed allocation."""
    signs = ("out of memory", "allocate memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def _reset_peak() -> None:
    """Reset the peak memory that the kernel records, if the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _field_mb(path: Path, name: str) -> float | None:
    """A field of a file of the kernel in MB; None if the file does not exist."""
    if not path.exists():
        return None
    line = next(line for line in path.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024

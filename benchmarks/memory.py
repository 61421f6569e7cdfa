"""Peak memory of a stretch of work, and a cap on it so that the machine survives a glutton."""

from __future__ import annotations

import gc
from pathlib import Path

import torch

from canet.util.memory import peak_resident_mb

STATUS = Path("/proc/self/status")
AVAILABLE = Path("/proc/meminfo")
MARGIN_MB = 1024  # left to the rest of the machine


class Meter:
    """Memory from its making on: allocated on the GPU, or resident in this process.

    `level_mb` is what was in use at the start, before a model was built.
    """

    def __init__(self, device: torch.device) -> None:
        gc.collect()
        self._device = device
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self.level_mb = torch.cuda.memory_allocated(device) / 2**20
        else:
            _forget_peak()
            self.level_mb = _field_mb(STATUS, "VmRSS") or self.peak_mb()

    def peak_mb(self) -> float:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**20
        return _field_mb(STATUS, "VmHWM") or peak_resident_mb()


def cap_memory() -> float | None:
    """Limit this process to what the machine has to spare; MB that it may still take.

    A process over the limit gets a refusal that it can report, where otherwise the system would
    swap or kill. The limit is one of address space, the only one that needs no privileges.
    """
    spare, mapped = _field_mb(AVAILABLE, "MemAvailable"), _field_mb(STATUS, "VmSize")
    if spare is None or mapped is None:
        return None
    allowance = max(0.0, spare - MARGIN_MB)
    limit = int((mapped + allowance) * 2**20)
    import resource  # where there is /proc, there is this

    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return allowance


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory was refused."""
    signs = ("out of memory", "allocate memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def _forget_peak() -> None:
    """Start the kernel's high-water mark anew; where that is impossible it stays what it was."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _field_mb(path: Path, name: str) -> float | None:
    """A field of a file of the kernel's, in MB; None where there is no such file."""
    if not path.exists():
        return None
    line = next(line for line in path.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024

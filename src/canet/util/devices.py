"""The device that computes, and its name in results."""

import platform
from collections.abc import Callable

import torch
from torch import Tensor

from canet.errors import InputError, unknown_name
from canet.util.memory import peak_resident_mb


def pick_device(name: str | torch.device) -> torch.device:
    """Return the device of a name; `auto` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise unknown_name("device", name, ("auto", "cpu", "cuda", "cuda:1")) from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device '{device}' is not supported: use 'cpu' or 'cuda'")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        found = f"no device '{device}', only {count} GPU(s)" if count else "no CUDA device"
        raise InputError(f"this machine has {found}: use device 'cpu' or 'auto'")
    return device


def device_name(device: torch.device, threads: int = 1) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{platform.machine()} CPU, {threads} thread(s)"


def peak_memory_mb(device: torch.device) -> float:
    """Return the peak memory in MB: allocated on the GPU, or resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return peak_resident_mb()


def has_room(num_bytes: int, device: torch.device) -> bool:
    """Whether a device can keep so much: at most half of the free memory of a GPU."""
    return device.type == "cpu" or num_bytes < torch.cuda.mem_get_info(device)[0] / 2


def recorded(compute: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Return a function with the same result; a GPU runs its kernels in one launch.

    It reads the same tensors each time, and writes its result into the same one.
    """
    if device.type != "cuda":
        return compute
    with torch.cuda.device(device):
        compute()  # compiles kernels and allocates what later calls reuse
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = compute()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay

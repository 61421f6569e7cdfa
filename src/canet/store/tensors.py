"""Named tensors: files of them, parts of them, and an optimiser's state as such."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from canet.errors import CanetError
from canet.util.files import write_bytes


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors as safetensors, atomically; gives the file's SHA-256."""
    return write_bytes(path, pack(tensors))


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return unpack(path.read_bytes(), path)
    except FileNotFoundError:
        raise CanetError(f"'{path}' is missing: the run is not finished") from None


def unpack(content: bytes, path: Path) -> dict[str, Tensor]:
    """The tensors in the bytes of a safetensors file; `path` is where they are from."""
    try:
        tensors: dict[str, Tensor] = load(content)
    except (SafetensorError, KeyError, ValueError, RuntimeError):
        raise damaged(path) from None
    return tensors


def damaged(path: Path) -> CanetError:
    """The error for a file of a run that cannot be what was written."""
    return CanetError(f"'{path}' is damaged: delete '{path.parent}' and train the run again")


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": tensor for i, slot in state.items() for name, tensor in slot.items()}


def adam_shapes(optimizer: torch.optim.Optimizer) -> dict[str, torch.Size]:
    """Name and shape of every tensor that Adam's state may hold, as in `optimizer_tensors`."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    moments = {"exp_avg", "exp_avg_sq"}
    shapes = {f"{i}.{name}": p.shape for i, p in enumerate(parameters) for name in moments}
    return shapes | {f"{i}.step": torch.Size([]) for i in range(len(parameters))}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    content = optimizer.state_dict()
    for key, tensor in tensors.items():
        index, _, name = key.partition(".")
        content["state"].setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict(content)

"""Named tensors: conversion to bytes, prefixes of names, and the state of an optimiser."""

from collections.abc import Mapping

import torch
from safetensors.torch import save
from torch import Tensor


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the bytes of a safetensors file."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": tensor for i, slot in state.items() for name, tensor in slot.items()}


def adam_shapes(optimizer: torch.optim.Optimizer) -> dict[str, torch.Size]:
    """Return name and shape of all tensors of Adam's state, named as in `optimizer_tensors`."""
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

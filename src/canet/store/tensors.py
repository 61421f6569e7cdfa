"""Named tensors: conversion to bytes, prefixes of names, and the state of an optimiser."""

from __future__ import annotations

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


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    content = optimizer.state_dict()
    for key, tensor in tensors.items():
        index, _, name = key.partition(".")
        content["state"].setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict(content)

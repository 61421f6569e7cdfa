"""A copy of the best weights so far, updated on the device."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class Snapshot:
    """A copy of tensors in one block of memory per dtype, so that one operation updates it."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self._names: dict[torch.dtype, list[str]] = {}
        for name, tensor in state.items():
            self._names.setdefault(tensor.dtype, []).append(name)
        self._flat = [self._joined(state, names) for names in self._names.values()]
        self.tensors: dict[str, Tensor] = {}
        for flat, names in zip(self._flat, self._names.values(), strict=True):
            pieces = flat.split([state[name].numel() for name in names])
            for name, piece in zip(names, pieces, strict=True):
                self.tensors[name] = piece.view(state[name].shape)

    def take(self, state: Mapping[str, Tensor], condition: Tensor) -> None:
        """Copy the tensors if the condition, a scalar tensor, is true."""
        for flat, names in zip(self._flat, self._names.values(), strict=True):
            torch.where(condition, self._joined(state, names), flat, out=flat)

    @staticmethod
    def _joined(state: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
        return torch.cat([state[name].reshape(-1) for name in names])

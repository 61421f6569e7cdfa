"""Mixtures of branches: the sum of K maps, weighted for each node."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from canet.nn.operations.fused import fused_mixture
from canet.nn.operations.products import Gathered


def mix_joined(gathered: Gathered, weight: Tensor, e: Tensor) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} [x_u \| z_u] + z_u)$, x from neighbours, z own.

    Shapes:
        - gathered of n nodes, weight $[K, 2H, H]$, e $[n, K]$ → $[n, H]$
    """
    if fused_mixture(gathered.neighbours, weight.shape[2]):
        return _fused_mix(gathered.neighbours, weight, e, gathered.own)
    return mix_branches(gathered.joined, weight, e).add_(gathered.own).relu_()


def mix_each(inputs: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} x_u^{(k)} + z_u)$, each branch with an input.

    Shapes:
        - inputs $[n, K, I]$, weight $[K, I, O]$, e $[n, K]$, z $[n, O]$ → $[n, O]$
    """
    if fused_mixture(inputs, weight.shape[2]):
        return _fused_mix(inputs, weight, e, z)
    return mix_branches(inputs, weight, e).add_(z).relu_()


def mix_shared(x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} x_u + z_u)$, one input for all branches.

    Shapes:
        - x $[n, I]$, weight $[K, I, O]$, e $[n, K]$, z $[n, O]$ → $[n, O]$
    """
    return mix_branches(x, weight, e).add_(z).relu_()


def mix_branches(inputs: Tensor, weight: Tensor, e: Tensor) -> Tensor:
    r"""$\sum_k e_{uk} W^{(k)\top} x_u^{(k)}$, composed.

    Shapes:
        - inputs $[n, I]$, the same for all branches, or $[n, K, I]$, weight $[K, I, O]$,
          e $[n, K]$ → $[n, O]$
    """
    branches, width, out = weight.shape
    if inputs.dim() == 3:
        return (inputs * e.unsqueeze(-1)).flatten(1) @ weight.flatten(0, 1)
    outputs = inputs @ weight.permute(1, 0, 2).reshape(width, -1)
    mixed: Tensor = _Mixed.apply(outputs.view(-1, branches, out), e)
    return mixed


def _fused_mix(x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    from canet.nn.kernels.mixture import FusedMixture

    out: Tensor = FusedMixture.apply(x, weight, e, z)
    return out


class _Mixed(torch.autograd.Function):
    r"""$\sum_k e_{uk} y_{uk}$ for y $[n, K, O]$ and e $[n, K]$, with no other tensor of y's size.

    Backward, the gradient of y is one.
    """

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, e: Tensor) -> Tensor:
        ctx.save_for_backward(outputs if ctx.needs_input_grad[1] else None, e)
        mixed = outputs[:, 0] * e[:, :1]
        for k in range(1, e.shape[1]):
            mixed.addcmul_(outputs[:, k], e[:, k : k + 1])
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs, e = ctx.saved_tensors
        grad_e = None if outputs is None else torch.bmm(outputs, grad.unsqueeze(-1)).squeeze(-1)
        return grad.unsqueeze(1) * e.unsqueeze(-1), grad_e

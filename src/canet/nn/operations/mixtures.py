"""Mixtures of branches: sums of K linear maps, with weights for each node."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from canet.nn.operations.fused import can_fuse_mixture
from canet.nn.operations.products import Gathered


def mix_joined(gathered: Gathered, weight: Tensor, e: Tensor) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} [x_u \| z_u] + z_u)$.

    x is the propagated state of the neighbours, z the state of the node itself.

    Shapes:
        - gathered x and z $[n, H]$, weight $[K, 2H, H]$, e $[n, K]$ → $[n, H]$
    """
    if can_fuse_mixture(gathered.neighbours, weight.shape[2]):
        return _fused_mix(gathered.neighbours, weight, e, gathered.own)
    return mix_branches(gathered.joined, weight, e).add_(gathered.own).relu_()


def mix_each(inputs: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} x_u^{(k)} + z_u)$, with an input per branch.

    Shapes:
        - inputs $[n, K, I]$, weight $[K, I, O]$, e $[n, K]$, z $[n, O]$ → $[n, O]$
    """
    if can_fuse_mixture(inputs, weight.shape[2]):
        return _fused_mix(inputs, weight, e, z)
    return mix_branches(inputs, weight, e).add_(z).relu_()


def mix_shared(x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} x_u + z_u)$, with the same input for all branches.

    Shapes:
        - x $[n, I]$, weight $[K, I, O]$, e $[n, K]$, z $[n, O]$ → $[n, O]$
    """
    return mix_branches(x, weight, e).add_(z).relu_()


def mix_branches(inputs: Tensor, weight: Tensor, e: Tensor) -> Tensor:
    r"""$\sum_k e_{uk} W^{(k)\top} x_u^{(k)}$, in plain PyTorch code.

    Shapes:
        - inputs $[n, I]$, the same for all branches, or $[n, K, I]$, weight $[K, I, O]$,
          e $[n, K]$ → $[n, O]$
    """
    branches, width, out = weight.shape
    if branches == 1 and not e.requires_grad:  # e is one
        return inputs.flatten(1) @ weight[0]
    if inputs.dim() == 3:
        return (inputs * e.unsqueeze(-1)).flatten(1) @ weight.flatten(0, 1)
    outputs = inputs @ weight.permute(1, 0, 2).reshape(width, -1)
    return _Mixed.apply(outputs.view(-1, branches, out), e)


def _fused_mix(x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    from canet.nn.kernels.mixture import FusedMixture

    return FusedMixture.apply(x, weight, e, z)


class _Mixed(torch.autograd.Function):
    r"""$\sum_k e_{uk} y_{uk}$ for y $[n, K, O]$ and e $[n, K]$.

    The forward pass allocates no tensor of the size of y, the backward pass only its gradient.
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

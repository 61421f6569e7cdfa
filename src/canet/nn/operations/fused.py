"""Whether there is a fused kernel for an operation: for its device, type and size."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

HAVE_TRITON = find_spec("triton") is not None
MAX_WIDTH = 256  # H of a tile that fits into a multiprocessor
MAX_LAYER_WIDTH = 128  # likewise, of a layer whose weights are in the tile, too
MAX_INPUTS, MAX_BRANCHES = 128, 16  # of an estimator that is faster in one kernel, and fits


def fused_attention(z: Tensor) -> bool:
    """Whether there is a kernel for attention over z $[n, H]$."""
    return on_gpu(z) and z.shape[1] <= MAX_WIDTH


def fused_mixture(x: Tensor, out: int) -> bool:
    """Whether there is a kernel for mixed maps of x $[n, I]$ or $[n, K, I]$ to $[n, O]$."""
    return _on_tensor_cores(x) and max(x.shape[-1], out) <= MAX_LAYER_WIDTH


def fused_posterior(x: Tensor, weight: Tensor) -> bool:
    """Whether there is a kernel for the posterior of x by weights $[K, I]$, and is worth it."""
    branches, inputs = weight.shape
    return _on_tensor_cores(x) and branches <= MAX_BRANCHES and inputs <= MAX_INPUTS


def fused_sample(logits: Tensor) -> bool:
    """Whether there is a kernel for the posterior of logits $[n, K]$."""
    return _on_tensor_cores(logits)


def _on_tensor_cores(tensor: Tensor) -> bool:
    return on_gpu(tensor) and tensor.dtype == torch.float32


def on_gpu(tensor: Tensor) -> bool:
    return HAVE_TRITON and tensor.is_cuda and torch.version.hip is None

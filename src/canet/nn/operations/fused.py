"""Checks whether a fused kernel can run an operation, given its device, data type and size."""

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
MAX_WIDTH = 256  # largest H whose tile fits into a multiprocessor
MAX_LAYER_WIDTH = 128  # the same for kernels whose tile also contains the weights
MAX_INPUTS, MAX_BRANCHES = 128, 16  # limits up to which a fused estimator fits and is faster


def can_fuse_attention(z: Tensor) -> bool:
    """Whether a kernel can run attention over z $[n, H]$."""
    return on_gpu(z) and z.shape[1] <= MAX_WIDTH


def can_fuse_mixture(x: Tensor, out: int) -> bool:
    """Whether a kernel can run a mixture of maps of x $[n, I]$ or $[n, K, I]$ to $[n, O]$."""
    return is_float32_on_gpu(x) and max(x.shape[-1], out) <= MAX_LAYER_WIDTH


def can_fuse_posterior(x: Tensor, weight: Tensor) -> bool:
    """Whether a kernel can run the posterior of x with weights $[K, I]$, and is faster."""
    branches, inputs = weight.shape
    return is_float32_on_gpu(x) and branches <= MAX_BRANCHES and inputs <= MAX_INPUTS


def is_float32_on_gpu(tensor: Tensor) -> bool:
    """Whether kernels in single precision can process a tensor."""
    return on_gpu(tensor) and tensor.dtype == torch.float32


def on_gpu(tensor: Tensor) -> bool:
    return HAS_TRITON and tensor.is_cuda and torch.version.hip is None

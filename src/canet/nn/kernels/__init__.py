"""Kernels of our own, kept only where they measurably win: on NVIDIA GPUs, written in Triton."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from canet.nn.sparse_matrix import Pattern

HAVE_TRITON = find_spec("triton") is not None


def fused_attention(z: Tensor) -> bool:
    """Whether `attend` can run where z is."""
    return HAVE_TRITON and z.is_cuda and torch.version.hip is None


def attend(
    neighbourhood: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor, slope: float
) -> Tensor:
    """Attention of K branches in one pass over the neighbours; see `propagation.attend`."""
    from canet.nn.kernels.attention import FusedAttention

    out: Tensor = FusedAttention.apply(z, score_dst, score_src, neighbourhood, slope)
    return out

"""Kernels of our own, kept only where they measurably win: on NVIDIA GPUs, written in Triton."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from canet.nn.sparse_matrix import Pattern

HAVE_TRITON = find_spec("triton") is not None
WIDEST = 256  # H of a tile that fits into a multiprocessor
WIDEST_LAYER = 128  # likewise, of a layer whose weights are in the tile, too
MOST_INPUTS, MOST_BRANCHES = 128, 16  # of an estimator that is faster in one kernel, and fits


def ordered_product(dense: Tensor) -> bool:
    """Whether `multiply` can run on a dense matrix."""
    return _on_gpu(dense)


def fused_attention(z: Tensor) -> bool:
    """Whether `attend` can run on z $[n, H]$."""
    return _on_gpu(z) and z.shape[1] <= WIDEST


def fused_mixture(x: Tensor, weight: Tensor) -> bool:
    """Whether `mix` can run on x $[n, I]$ or $[n, K, I]$ and weights $[K, ., O]$."""
    width = max(x.shape[-1], weight.shape[2])
    return _on_tensor_cores(x) and width <= WIDEST_LAYER


def fused_posterior(x: Tensor, weight: Tensor) -> bool:
    """Whether `infer` can run on x and weights $[K, I]$, and is worth it."""
    branches, inputs = weight.shape
    return _on_tensor_cores(x) and branches <= MOST_BRANCHES and inputs <= MOST_INPUTS


def fused_sample(logits: Tensor) -> bool:
    """Whether `sample` can run on logits $[n, K]$."""
    return _on_tensor_cores(logits)


def multiply(pattern: Pattern, value: Tensor, dense: Tensor, base: Tensor | None = None) -> Tensor:
    """Product of a sparse $[n, m]$ and a dense $[m, h]$ matrix, to the same bits every time, and
    a base $[b, h]$ added to its first rows.
    """
    from canet.nn.kernels.product import multiply

    return multiply(pattern, value, dense, base)


def attend(
    neighbourhood: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Attention of K branches in one pass over the neighbours, $[n_{dst}, K, H]$, and the readers'
    own states $[n_{dst}, H]$.

    See `propagation.attend`, which is that of one branch.
    """
    from canet.nn.kernels.attention import FusedAttention

    both: tuple[Tensor, Tensor] = FusedAttention.apply(
        z, score_dst, score_src, neighbourhood, slope
    )
    return both


def mix(x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    """K linear maps mixed per node, residual link and ReLU; see `propagation.next_states`."""
    from canet.nn.kernels.mixture import FusedMixture

    out: Tensor = FusedMixture.apply(x, weight, e, z)
    return out


def infer(
    x: Tensor,
    beside: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    draws: Tensor | None,
    tau: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """An environment from x, or $[x \\| x']$; see `EnvironmentEstimator` and `Environment`."""
    from canet.nn.kernels.posterior import FusedPosterior

    fields: tuple[Tensor, Tensor, Tensor] = FusedPosterior.apply(
        x, beside, weight, bias, draws, tau
    )
    return fields


def sample(logits: Tensor, draws: Tensor | None, tau: float) -> tuple[Tensor, Tensor, Tensor]:
    """An environment from its logits $[n, K]$; see `EnvironmentEstimator` and `Environment`."""
    from canet.nn.kernels.posterior import FusedSample

    fields: tuple[Tensor, Tensor, Tensor] = FusedSample.apply(logits, draws, tau)
    return fields


def _on_tensor_cores(tensor: Tensor) -> bool:
    return _on_gpu(tensor) and tensor.dtype == torch.float32


def _on_gpu(tensor: Tensor) -> bool:
    return HAVE_TRITON and tensor.is_cuda and torch.version.hip is None

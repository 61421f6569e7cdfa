"""What kernels with products on tensor cores share: sizes, precision, and sums over programs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from canet.nn.kernels.launch import launch

MULTIPROCESSORS = 132  # of a large GPU, which have a few programs each where these sum over nodes
TILE = 8192  # parts that a program sums up


def tile_side(size: int) -> int:
    """The smallest power of two that holds `size` and that tensor cores take."""
    side: int = triton.next_power_of_2(size)
    return max(16, side)


def exact_products() -> bool:
    """Whether products of fp32 numbers are to keep their accuracy, as PyTorch's own do."""
    return torch.get_float32_matmul_precision() == "highest"


def sum_parts(part: Tensor) -> Tensor:
    """Sum over the first dimension of $[s, ...]$, what s programs began, in a fixed order."""
    out = torch.empty_like(part[0])
    height = triton.next_power_of_2(part.shape[0])
    width = max(16, TILE // height)
    launch(_sum_parts, (triton.cdiv(out.numel(), width),))(
        part, out, part.shape[0], out.numel(), BLOCK_S=height, BLOCK=width
    )
    return out


@triton.jit
def _sum_parts(part, out, parts, numel, BLOCK_S: tl.constexpr, BLOCK: tl.constexpr):
    at, s = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK_S)
    inside = (s < parts)[:, None] & (at < numel)[None, :]
    entries = tl.load(part + s[:, None].to(tl.int64) * numel + at[None, :], mask=inside, other=0.0)
    tl.store(out + at, tl.sum(entries, axis=0), mask=at < numel)

"""Helpers of the kernels that use tensor cores: sizes, precision, and sums over programs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from canet.nn.kernels.launch import launch

MULTIPROCESSORS = 132  # of a large GPU; programs that sum over nodes are a small multiple of it
TILE = 8192  # entries that a program sums


def tile_side(size: int) -> int:
    """Return the smallest power of two that is at least `size` and 16 (for tensor cores)."""
    side: int = triton.next_power_of_2(size)
    return max(16, side)


def exact_products() -> bool:
    """Whether fp32 products must have full precision, as set for PyTorch's own products."""
    return torch.get_float32_matmul_precision() == "highest"


def sum_parts(part: Tensor) -> Tensor:
    """Sum the results $[s, ...]$ of s programs over the first dimension, in a fixed order."""
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

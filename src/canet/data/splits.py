"""Random 50/25/25 splits of the in-distribution nodes."""

from __future__ import annotations

import torch
from torch import Tensor


def split_50_25_25(nodes: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Split node ids $[n]$ at random into train (50 %), valid (25 %) and test (the rest)."""
    shuffled = nodes[torch.randperm(nodes.numel(), generator=generator)]
    half, quarter = nodes.numel() // 2, nodes.numel() // 4
    train, valid, test = shuffled.split([half, quarter, nodes.numel() - half - quarter])
    return train.sort().values, valid.sort().values, test.sort().values

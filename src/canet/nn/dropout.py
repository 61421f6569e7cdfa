"""Dropout that does not spend most of its time on random numbers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

LANES = 4  # 16-bit numbers in one 64-bit draw
STEPS = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each entry with probability p, to within 1 / 65536, and scale up the others so that the
    mean stays.

    On a CPU torch draws the mask number by number; here one 64-bit draw decides four entries.
    """
    if not training or p == 0:
        return x
    if x.is_cuda:
        return F.dropout(x, p)
    dropped = min(round(p * STEPS), STEPS - 1)
    draws = torch.empty((x.numel() + LANES - 1) // LANES, dtype=torch.int64, device=x.device)
    lanes = draws.random_(-(2**63), None).view(torch.int16)[: x.numel()].view(x.shape)
    kept = lanes >= dropped - STEPS // 2
    return (x * kept).mul_(STEPS / (STEPS - dropped))

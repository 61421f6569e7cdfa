"""Dropout that draws few random numbers on the CPU."""

import torch
from torch import Tensor
from torch.nn import functional as F

LANES = 4  # 16-bit numbers in a 64-bit random number
STEPS = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Set each entry to zero with probability p (rounded to 1/65536) and scale up the others to
    keep the expected value.

    On the CPU, torch draws one random number per entry. Here one 64-bit number serves four entries.
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

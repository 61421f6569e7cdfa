"""A penalty on top of the risk whose weight rises after some updates."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AnnealedPenalty(nn.Module):
    r"""$(R + \lambda P) / \max(1, \lambda)$, with $\lambda = 1$ for the first updates.

    The division keeps gradients in one range when λ is large, as in the code of Arjovsky et al.
    Adam goes on with its moments when λ jumps.

    Args:
        weight: λ after the first updates.
        steps: How many updates have λ = 1.

    Shapes:
        - risk R and penalty P, scalars → scalar
    """

    updates: Tensor

    def __init__(self, weight: float, steps: int) -> None:
        super().__init__()
        self.weight = weight
        self.steps = steps
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, risk: Tensor, penalty: Tensor) -> Tensor:
        weight = torch.where(self.updates < self.steps, 1.0, self.weight)
        if self.training:
            self.updates += 1
        return (risk + weight * penalty) / weight.clamp(min=1)

"""A penalty on top of the risk whose weight rises after some updates."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AnnealedPenalty(nn.Module):
    r"""$R + \lambda P$, with $\lambda = 1$ for the first updates.

    Adam goes on with its moments when λ jumps. The sum is not divided by a large λ, as Arjovsky et
    al. do with weight decay inside it: Adam has its own weight decay, which would grow λ-fold
    beside the sum, and needs no help with the scale of gradients.

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
        weighted = torch.where(self.updates < self.steps, penalty, self.weight * penalty)
        if self.training:
            self.updates += 1
        return risk + weighted

"""A penalty whose weight increases after a number of updates."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AnnealedPenalty(nn.Module):
    r"""$R + \lambda P$, with $\lambda = 1$ for the first updates.

    Adam's moments are kept when λ changes. Arjovsky et al. divide the sum by a large λ. This is not
    done here: Adam adds weight decay outside the loss, so the division would make it λ times
    stronger, and Adam is invariant to the scale of the gradients.

    Args:
        weight: λ after the first updates.
        steps: Number of updates with λ = 1.

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

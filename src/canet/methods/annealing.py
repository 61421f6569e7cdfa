"""Base class of the methods with a penalty whose weight increases after a number of updates."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from canet.methods.base import Method, Settings
from canet.methods.traits import Traits
from canet.settings import setting


@dataclass(frozen=True)
class AnnealedSettings(Settings):
    """Settings of a method with such a penalty."""

    penalty_weight: float = setting(
        1.0, "weight of the penalty, λ or β", minimum=0, search=(1.0, 10.0, 100.0, 1000.0)
    )
    anneal_steps: int = setting(
        50, "number of updates at the start with weight 1", minimum=0, search=(0, 50, 100, 200)
    )


class AnnealedPenalty(nn.Module):
    r"""$R + \lambda P$ of scalars, with $\lambda = 1$ for the first `steps` updates, then `weight`.

    Adam's moments are kept when λ changes. Arjovsky et al. divide the sum by a large λ. This is not
    done here: Adam adds weight decay outside the loss, so the division would make it λ times
    stronger, and Adam is invariant to the scale of the gradients.
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


class AnnealedMethod(Method):
    traits = Traits(needs_environments=True, trains_in_batches=True, capturable=True)
    settings_type = AnnealedSettings

    def setup(self) -> None:
        self.annealed = AnnealedPenalty(self.settings.penalty_weight, self.settings.anneal_steps)

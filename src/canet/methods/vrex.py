"""Risk extrapolation: equal risks in all environments."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from canet.methods.annealing import AnnealedPenalty
from canet.methods.base import Batch, Method, Settings
from canet.methods.traits import Traits
from canet.settings import setting
from canet.util.colour import Colour


@dataclass(frozen=True)
class VRExSettings(Settings):
    """Settings of V-REx."""

    penalty_weight: float = setting(
        1.0, "β, weight of the variance of the risks", minimum=0, search=(1.0, 10.0, 100.0, 1000.0)
    )
    anneal_steps: int = setting(
        50,
        "number of updates at the start with weight 1 instead of β",
        minimum=0,
        search=(0, 50, 100, 200),
    )


class VREx(Method):
    r"""V-REx (Krueger et al., ICML '21). With the risk $R_e$ of each environment, it minimises

    .. math:: \frac{1}{E} \sum_e R_e + \beta \, \mathrm{Var}(R_1, \dots, R_E).

    In a batch, mean and variance are over the environments that have a node in it.
    """

    name = "vrex"
    label = "V-REx"
    colour = Colour("#7f5fa8", "#b79ddb")
    summary = "mean and variance of the risks of the environments"
    paper = "Krueger et al., Out-of-Distribution Generalization via Risk Extrapolation, ICML 2021"
    traits = Traits(needs_environments=True, trains_in_batches=True, capturable=True)
    settings_type = VRExSettings

    def setup(self) -> None:
        self.annealed = AnnealedPenalty(self.settings.penalty_weight, self.settings.anneal_steps)

    def loss(self, batch: Batch) -> Tensor:
        losses = self.node_losses(self.predict(batch), batch.y, batch.weight)
        risks = self.environment_risks(losses, batch.environment)
        is_present, factor = self.present_environments(batch.environment)
        mean = risks.mean() * factor
        variance = torch.where(is_present, risks, mean).var(correction=0) * factor
        loss: Tensor = self.annealed(mean, variance)
        return loss

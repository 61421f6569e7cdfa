"""Risk extrapolation: equal risks in all environments."""

import torch
from torch import Tensor

from canet.methods.annealing import AnnealedMethod
from canet.methods.base import Batch
from canet.util.colour import Colour


class VREx(AnnealedMethod):
    r"""V-REx (Krueger et al., ICML '21). With the risk $R_e$ of each environment, it minimises

    .. math:: \frac{1}{E} \sum_e R_e + \beta \, \mathrm{Var}(R_1, \dots, R_E).

    In a batch, mean and variance are over the environments that have a node in it.
    """

    name = "vrex"
    label = "V-REx"
    colour = Colour("#7f5fa8", "#b79ddb")
    summary = "mean and variance of the risks of the environments"
    paper = "Krueger et al., Out-of-Distribution Generalization via Risk Extrapolation, ICML 2021"

    def loss(self, batch: Batch) -> Tensor:
        losses = self.node_losses(self.predict(batch), batch.y, batch.weight)
        risks = self.environment_risks(losses, batch.environment)
        is_present, factor = self.present_environments(batch.environment)
        mean = risks.mean() * factor
        variance = torch.where(is_present, risks, mean).var(correction=0) * factor
        return self.annealed(mean, variance)

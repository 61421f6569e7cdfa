"""Invariant risk minimisation: one classifier that is optimal in every environment."""

import torch
from torch import Tensor

from canet.methods.annealing import AnnealedMethod
from canet.methods.base import Batch
from canet.util.colour import Colour


class IRM(AnnealedMethod):
    r"""IRMv1 (Arjovsky et al., 2019). With the risk $R_e$ of each environment, it minimises

    .. math:: \frac{1}{E} \sum_e R_e(f)
              + \frac{\lambda}{E} \sum_e \left(\nabla_{w | w = 1} R_e(w \cdot f)\right)^2.

    In a batch, the means are over the environments that have a node in it.
    """

    name = "irm"
    label = "IRM"
    colour = Colour("#d08f00", "#f0b73c")
    summary = "penalty if rescaling the logits would lower the risk of an environment"
    paper = "Arjovsky et al., Invariant Risk Minimization, 2019"

    def loss(self, batch: Batch) -> Tensor:
        risks, slopes = self.risks_and_slopes(
            self.predict(batch), batch.y, batch.environment, batch.weight
        )
        _, factor = self.present_environments(batch.environment)
        return self.annealed(risks.mean() * factor, slopes.square().mean() * factor)

    def risks_and_slopes(
        self, logits: Tensor, y: Tensor, environment: Tensor | None, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return $R_e$ and $\\nabla_w R_e$ $[E]$; only the logits depend on w."""
        scale = logits.new_ones(self.num_environment_labels, requires_grad=True)
        scaled = logits * (self.membership(environment) @ scale).unsqueeze(1)
        risks = self.environment_risks(self.node_losses(scaled, y, weight), environment)
        (slopes,) = torch.autograd.grad(risks.sum(), scale, create_graph=True)
        return risks, slopes

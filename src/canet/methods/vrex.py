"""Risk extrapolation: environments with equal risks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from canet.methods.annealing import AnnealedPenalty
from canet.methods.base import Backbone, Batch, Method, Settings
from canet.settings import setting


@dataclass(frozen=True)
class VRExSettings(Settings):
    """Settings of V-REx."""

    penalty_weight: float = setting(
        1.0, "β, weight of the variance", minimum=0, search=(1.0, 10.0, 100.0, 1000.0)
    )
    anneal_steps: int = setting(
        50, "updates with weight 1 before β", minimum=0, search=(0, 50, 100, 200)
    )


class VREx(Method):
    r"""V-REx (Krueger et al., ICML '21) minimises, with the risk $R_e$ of each environment,

    .. math:: \frac{1}{E} \sum_e R_e + \beta \, \mathrm{Var}(R_1, \dots, R_E).
    """

    name = "vrex"
    summary = "the mean of the environments' risks and their variance"
    paper = "Krueger et al., Out-of-Distribution Generalization via Risk Extrapolation, ICML 2021"
    needs_environments = True
    settings_type = VRExSettings

    def __init__(
        self,
        settings: VRExSettings,
        backbone: Backbone,
        num_features: int,
        num_classes: int,
        num_environment_labels: int = 0,
    ) -> None:
        super().__init__(settings, backbone, num_features, num_classes, num_environment_labels)
        self.annealed = AnnealedPenalty(settings.penalty_weight, settings.anneal_steps)

    def loss(self, batch: Batch) -> Tensor:
        losses = self.node_losses(self.predict(batch), batch.y)
        risks = self.environment_risks(losses, batch.environment)
        loss: Tensor = self.annealed(risks.mean(), risks.var(correction=0))
        return loss

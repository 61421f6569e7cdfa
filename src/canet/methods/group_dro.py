"""Group distributionally robust optimisation: more weight for environments with larger risk."""

from dataclasses import dataclass

import torch
from torch import Tensor

from canet.methods.base import Batch, Method, Settings
from canet.methods.traits import Traits
from canet.settings import setting
from canet.util.colour import Colour


@dataclass(frozen=True)
class GroupDROSettings(Settings):
    eta: float = setting(
        0.01,
        "η, step size of the weights of the environments",
        minimum=0,
        search=(0.001, 0.01, 0.1),
    )


class GroupDRO(Method):
    r"""GroupDRO (Sagawa et al., ICLR '20, algorithm 1). With the risk $R_e$ of each environment, a
    step updates the weights q and then minimises the weighted risk,

    .. math:: q_e \leftarrow \frac{q_e \exp(\eta R_e)}{\sum_{e'} q_{e'} \exp(\eta R_{e'})},
              \qquad \min_\theta \sum_e q_e R_e.

    An environment without a node in a batch has $R_e = 0$.
    """

    name = "group_dro"
    label = "GroupDRO"
    colour = Colour("#3ba0dc", "#8bcdf5")
    summary = "larger weights for environments with larger risk"
    paper = "Sagawa et al., Distributionally Robust Neural Networks for Group Shifts, ICLR 2020"
    traits = Traits(needs_environments=True, trains_in_batches=True, capturable=True)
    settings_type = GroupDROSettings
    q: Tensor

    def setup(self) -> None:
        uniform = 1 / self.num_environment_labels
        self.register_buffer("q", torch.full((self.num_environment_labels,), uniform))

    def loss(self, batch: Batch) -> Tensor:
        losses = self.node_losses(self.predict(batch), batch.y, batch.weight)
        risks = self.environment_risks(losses, batch.environment)
        if self.training:
            raised = self.q * (self.settings.eta * risks.detach()).exp()
            self.q.copy_(raised / raised.sum())
        return self.q @ risks
